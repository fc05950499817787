"""A short history in an object store whose answers are lost; `python -m tests.faults --object-store 1` runs longer ones, with everything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.objects import SERVERS
from tests.faults.plan import STORE_FAULTS, draw
from tests.faults.proxy import CUT, IF_ABSENT, LOST
from tests.faults.run import STEPS, run
from tests.processes import Pool
from tools import versitygw

SHORT = ["lost_answers", "cut_answers"]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    found = Pool(tmp_path, "plain")
    yield found
    found.close()


@pytest.mark.long
@pytest.mark.parametrize("server", SERVERS)
def test_a_history_in_an_object_store(
    pool: Pool, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """Q5, S5: commits whose answers are lost, and what is read in parts, leave each message there once and in order."""
    if server == "versitygw":
        request.getfixturevalue("needs_gateway")
    drawn = draw(5, 100, SHORT, machine_s=60.0)  # a consumer is killed while answers are lost
    few = {"writers": 1, "recorders": 1, "named": drawn.named[:2], "partitions": 2, "rows": 25, "every_s": 2.0}
    plan = replace(drawn, **few)
    told = run(plan, pool, tmp_path / "history", serve=SERVERS[server])
    with capsys.disabled():
        print(f"\n{json.dumps(told)}")
    assert told["findings"] == 0, told
    happened = told["happened"]
    assert happened[f"{LOST}: {IF_ABSENT}"] >= 10 and happened[f"{CUT}: GET"] >= 1 and happened["kill -9"] >= 1
    assert not {what for what in happened if what.startswith("ended")}, happened


def test_without_go_there_is_no_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versitygw, "_BUILT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(versitygw.NoGatewayError, match="there is no program `go` on the PATH"):
        versitygw.program.__wrapped__()


def test_which_histories_lie_in_an_object_store() -> None:
    """The share of seeds that was asked for, and those with steps that are done only there."""
    places = [draw(seed, 5_000, on_objects=0.2).on_objects for seed in range(200)]
    assert 20 <= sum(places) <= 60
    assert not any(draw(seed, 5_000).on_objects for seed in range(20))
    assert all(draw(seed, 5_000, ["store_slow"]).on_objects for seed in range(20))


def test_what_is_drawn_for_an_object_store() -> None:
    kinds = {step.kind for seed in range(50) for step in draw(seed, 5_000, on_objects=1.0).steps}
    assert set(STORE_FAULTS) <= kinds <= set(STEPS) - {"disk_full", "read_only"}
    on_a_disk = {step.kind for seed in range(50) for step in draw(seed, 5_000).steps}
    assert {"disk_full", "read_only"} <= on_a_disk and not on_a_disk & set(STORE_FAULTS)
