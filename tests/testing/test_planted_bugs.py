"""A simulation that finds nothing proves nothing: every bug that is planted is caught by the run that is recorded for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.helpers import ROOT
from tests.testing.planted.bugs import Bug
from tests.testing.planted.hunt import SEEDS, caught_by_test, recorded
from tests.testing.planted.table import BUGS

Ask = Callable[[str, Bug], str]
BY_RUN = [bug for bug in BUGS.values() if bug.test is None]
# Their runs take longest, seconds each.
LONG_RUNS = {
    "a_group_attaches_after_it_has_read_where_to_start",
    "a_group_learns_of_partitions_only",
    "a_reader_does_not_know_which_columns_came_later",
    "a_reset_to_what_is_gone",
    "all_settings_are_written",
    "an_expiry_keeps_the_epoch",
    "deliveries_are_not_counted",
    "files_never_grow_old",
    "nothing_counts_as_given",
    "old_files_are_fit",
    "others_are_waited_for_without_an_end",
    "what_is_left_out_lies_in_the_way",
    "what_is_removed_is_measured_once",
}
BY_TEST = [bug for bug in BUGS.values() if bug.test is not None]


@pytest.fixture(scope="module")
def problem() -> Iterator[Ask]:
    """What a bug's recorded run shows "with" it or "without"; in one process, in which the order of sets is always the same."""
    command = [sys.executable, "-m", "tests.testing.planted", "--serve"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        ask, answers = process.stdin, process.stdout

        def answer(which: str, bug: Bug) -> str:
            print(which, bug.name, file=ask, flush=True)
            return str(json.loads(answers.readline()))

        yield answer
        ask.close()


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[pytest.mark.long] if bug.name in LONG_RUNS else [], id=bug.name) for bug in BY_RUN],
)
def test_a_run_catches_it(bug: Bug, problem: Ask) -> None:
    """The run goes wrong with the bug, in a way that is not known."""
    assert problem("with", bug), f"look for another seed: python -m tests.testing.planted --find {bug.name}"


@pytest.mark.long
@pytest.mark.parametrize("bug", BY_RUN, ids=lambda bug: bug.name)
def test_the_run_is_well_without_it(bug: Bug, problem: Ask) -> None:
    assert not problem("without", bug), f"the seed shows a fault of the package: {recorded()[bug.name]}"


@pytest.mark.parametrize("bug", BY_TEST, ids=lambda bug: bug.name)
def test_a_test_catches_it(bug: Bug) -> None:
    """What no run can show a test of its function does."""
    assert caught_by_test(bug)


def test_the_seeds_are_those_of_the_bugs() -> None:
    """Each is among the first that are tried, and none is left of a bug that is gone."""
    assert recorded().keys() == {bug.name for bug in BY_RUN} > LONG_RUNS
    assert all(0 <= seed < SEEDS for seed in recorded().values())
