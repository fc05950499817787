"""The README's example runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spark_partq as partq
from tests.helpers import ROOT, driver, finished

README = ROOT / "README.md"
IN_FOLDER = (
    "import os, sys; os.chdir(sys.argv[1]); exec(compile(sys.argv[2], 'README.md', 'exec'), {'__name__': '__main__'})"
)
ORDER = r"\| +(o\d)\| +(\w+)\| +([\d.]+)\|orders\|"


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_ten_lines(tmp_path: Path, processes: int) -> None:
    """U1, U2: what a newcomer pastes, twice, into an empty folder produces and consumes, and ends."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    three = [("o1", "ada", "9.5"), ("o2", "joe", "3.0"), ("o3", "ada", "20.25")]
    if processes == 1:
        out = finished(driver(IN_FOLDER, str(tmp_path), example * 2))
        assert sorted(re.findall(ORDER, out)) == sorted(three * 3)  # one time those of the first run, then all
    else:
        for times in (1, 2):
            out = finished(driver(IN_FOLDER, str(tmp_path), example))
            assert sorted(re.findall(ORDER, out)) == sorted(three * times)
    found = partq.describe_queue(tmp_path / "store", "orders")
    assert found.groups == ("billing",)
    assert (found.operating_partitions, found.depth) == (8, 0)
