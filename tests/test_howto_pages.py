"""Every page of instructions is executed by a test; `tests/howto.py` says by which."""

from __future__ import annotations

import ast

import pytest
import yaml

from tests.helpers import ROOT
from tests.howto import EXECUTED


def test_no_page_is_left_out() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    nav = yaml.safe_load(text[text.index("\nnav:\n") :])["nav"]  # what is above has objects of Python
    (pages,) = [part["How to"] for part in nav if "How to" in part]
    assert list(EXECUTED) == pages


@pytest.mark.parametrize("page", EXECUTED)
def test_the_tests_are_there(page: str) -> None:
    """Each reads the page, or is about it: its function or its module names the page."""
    for test in EXECUTED[page]:
        name, _, function = test.partition("::")
        module = (ROOT / "tests" / name).read_text()
        assert function in {node.name for node in ast.parse(module).body if isinstance(node, ast.FunctionDef)}, test
        assert page in module, test
