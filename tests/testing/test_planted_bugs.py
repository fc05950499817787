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

Answer = tuple[str, str]
BY_RUN = [bug for bug in BUGS.values() if bug.test is None]
# Their runs take longest, up to ten seconds.
LONG_RUNS = {
    "a_commit_is_copied_before_its_files",
    "a_commit_is_no_compare_and_set",
    "a_fence_is_not_taken_away",
    "a_fenced_table_takes_rows",
    "a_file_too_many_is_removed",
    "a_floor_is_what_was_delivered",
    "a_floor_lies_past_the_position",
    "a_floor_outlives_a_reset",
    "a_group_attaches_after_it_has_read_where_to_start",
    "a_group_is_missing_where_it_is_decided",
    "a_new_owner_is_given_no_time",
    "a_pass_copies_commits_before_manifests",
    "a_position_moves_to_the_end_of_what_was_planned",
    "a_promoted_replica_stays_fenced",
    "a_reader_does_not_know_which_columns_came_later",
    "a_replay_does_not_wait_at_the_barrier",
    "a_replay_is_not_marked",
    "a_reset_to_what_is_gone",
    "a_segment_lacks_its_last_file",
    "all_settings_are_written",
    "an_expiry_keeps_the_epoch",
    "an_old_checkpoint_is_accepted",
    "deliveries_are_not_counted",
    "files_never_grow_old",
    "held_messages_between_others_are_delivered",
    "keys_are_released_before_all_is_read",
    "keys_stay_held_when_their_messages_are_put_back",
    "maintenance_asks_one_group",
    "maintenance_ignores_the_minimum",
    "messages_are_removed_before_floors_are_committed",
    "messages_go_before_they_are_too_old",
    "nobody_decides_floors",
    "nobody_is_ever_expelled",
    "nobody_is_given_time_to_acknowledge",
    "nothing_counts_as_given",
    "old_files_are_fit",
    "others_are_waited_for_without_an_end",
    "partitions_are_not_fenced",
    "positions_of_before_a_promotion_count_in_full",
    "the_lineage_epoch_is_continued_across_owners",
    "the_lineage_epoch_is_not_continued",
    "the_lineage_goes_on_after_a_forced_revocation",
    "the_primary_is_fenced_after_the_last_pass",
    "what_a_dead_redrive_has_made_durable_is_never_placed",
    "what_a_replay_leaves_out_counts_as_delivered",
    "what_is_left_out_lies_in_the_way",
    "what_is_removed_is_measured_once",
    "what_is_sent_is_not_looked_up",
    "what_others_own_counts_as_given",
    "what_was_delivered_is_removed",
    "what_was_not_handed_out_is_not_waited_for",
}
BY_TEST = [bug for bug in BUGS.values() if bug.test is not None]


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[Bug], Answer]]:
    """What a bug's recorded run shows with it, and without; in one process, in which the order of sets is always the same."""
    command = [sys.executable, "-m", "tests.testing.planted", "--serve"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        ask, answers = process.stdin, process.stdout

        def answer(bug: Bug) -> Answer:
            print(bug.name, file=ask, flush=True)
            with_it, without = json.loads(answers.readline())
            return with_it, without

        yield answer
        ask.close()


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[pytest.mark.long] if bug.name in LONG_RUNS else [], id=bug.name) for bug in BY_RUN],
)
def test_a_run_catches_it(bug: Bug, run: Callable[[Bug], Answer]) -> None:
    """The run goes wrong with the bug, in a way that is not known, and goes well without."""
    with_it, without = run(bug)
    assert with_it and not without, f"look for another seed: python -m tests.testing.planted --find {bug.name}"


@pytest.mark.parametrize("bug", BY_TEST, ids=lambda bug: bug.name)
def test_a_test_catches_it(bug: Bug) -> None:
    """What no run can show a test of its function does."""
    assert caught_by_test(bug)


def test_the_seeds_are_those_of_the_bugs() -> None:
    """Each is among the first that are tried, and none is left of a bug that is gone."""
    assert recorded().keys() == {bug.name for bug in BY_RUN} > LONG_RUNS
    assert all(0 <= seed < SEEDS for seed in recorded().values())
