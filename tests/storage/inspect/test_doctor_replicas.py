"""The doctor names what is wrong between a queue and its replicas, and what to do about it (S7)."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil

import pytest
from typer.testing import CliRunner

import spark_partq as partq
from spark_partq.cli import app
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.inspect.replicas import in_sync
from spark_partq.storage.procedures import promote as promotions
from spark_partq.storage.procedures import remove_replica as removals
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import (
    Crash,
    crash,
    crashing,
    put,
    queue_fixture,  # noqa: F401
    sync,
    there_fixture,  # noqa: F401
)


def told(store: str) -> list[str]:
    return [str(finding) for finding in diagnose(Store.at(store)).findings]


def the_remedy(store: str) -> str:
    """Of the only finding."""
    (finding,) = diagnose(Store.at(store)).findings
    return finding.remedy


def run_the_last_command(store: str) -> None:
    """Run the last command that the remedy of the only finding names."""
    command = the_remedy(store).rpartition("spark-partq ")[2].rstrip(")")
    done = CliRunner().invoke(app, ["--store", store, *shlex.split(command)])
    assert done.exit_code == 0, done.output


def interrupt(monkeypatch: pytest.MonkeyPatch, there: str, step: str) -> None:
    """A promotion that dies before this function of its module is called."""
    with monkeypatch.context() as patch:
        patch.setattr(promotions, step, crash)
        with pytest.raises(Crash):
            promote(Store.at(there), "q")


def test_a_replica_that_is_gone_is_removed(queue: str, there: str) -> None:
    sync(queue, there)
    shutil.rmtree(there)
    run_the_last_command(queue)
    assert told(queue) == []
    assert partq.describe_queue(queue, "q").replicas == ()


def test_a_replica_that_took_over_and_is_gone_is_removed(queue: str, there: str) -> None:
    """The primary is used again, as it was when it was fenced; of its other replicas nothing is said."""
    sync(queue, there)
    sync(queue, f"{there}-2")
    put(queue, 0, range(3))
    promote(Store.at(there), "q")
    for gone in there, f"{there}-2":
        shutil.rmtree(gone)
    assert "lost for good" in the_remedy(queue)
    run_the_last_command(queue)
    put(queue, 0, range(3, 5))
    assert open_queue(Store.at(queue), "q").state.fenced_by is None


def test_a_promotion_that_died_while_the_primary_was_away_is_cancelled(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command needs --force, as it cancels a promotion."""
    sync(queue, there)
    os.rename(queue, f"{queue}-away")
    interrupt(monkeypatch, there, "begin_groups_anew")
    os.rename(f"{queue}-away", queue)
    run_the_last_command(queue)
    assert told(queue) == []
    put(queue, 0, [1])


def takes_messages(store: str) -> bool:
    try:
        Producer(open_queue(Store.at(store), "q")).refresh()
    except partq.PartqError:
        return False
    return True


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_promotion_that_died(queue: str, there: str, every: int) -> None:
    """As long as no store takes messages, the doctor of both stores says that the promotion is to be run again."""
    Consumer(queue, "i").ack(0, 0)
    put(queue, 0, range(5))
    sync(queue, there)
    before = {store: shutil.copytree(store, f"{store}-before") for store in (queue, there)}
    nowhere = 0
    for at in range(1, 1_000, every):
        for store, copy in before.items():
            shutil.rmtree(store)
            shutil.copytree(copy, store)
        with crashing(at) as done, contextlib.suppress(Crash):
            promote(Store.at(there), "q")
        if not takes_messages(queue) and not takes_messages(there):
            nowhere += 1
            assert any("promote it again" in text for text in told(queue)), at
        if len(done) < at:
            break
    assert nowhere > 3 and takes_messages(there)
    assert told(queue) == told(there) == []


def assert_gets_no_messages(queue: str, why: str) -> None:
    """The primary says so of its only replica, and the doctor's remedy ends that."""
    (status,) = partq.replicas(queue, "q")
    assert why in status.problem and not in_sync(Store.at(queue), "q")
    (text,) = told(queue)
    assert text.startswith("warning") and "gets no messages" in text and why in text
    run_the_last_command(queue)
    assert told(queue) == [] and partq.describe_queue(queue, "q").replicas == ()


def test_a_removal_that_died(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica says that it is removed, and the primary does not know."""
    sync(queue, there)
    with monkeypatch.context() as patch:
        patch.setattr(removals.decide_replicas, "remove_replica", crash)
        with pytest.raises(Crash):
            remove_replica(Store.at(queue), "q", there)
    assert_gets_no_messages(queue, "its removal was interrupted")


def test_a_replica_of_another_queue(queue: str, there: str) -> None:
    sync(queue, there)
    partq.delete_queue(there, "q")
    other = f"{there}-other"
    partq.create_queue(other, "q", "v bigint", partitions=2)
    sync(other, there)
    assert_gets_no_messages(queue, f"it is the replica of another queue 'q' (of {other})")
    assert told(other) == [] and in_sync(Store.at(other), "q")


def test_a_replica_that_follows_another_store(queue: str, there: str) -> None:
    """A copy of the primary's files has become a store of its own."""
    sync(queue, there)
    copied = str(shutil.copytree(queue, f"{queue}-copied"))
    partq.delete_queue(there, "q")
    sync(copied, there)
    assert_gets_no_messages(queue, f"it follows {copied}")


def test_a_fenced_primary_is_not_followed(queue: str, there: str) -> None:
    """Its other replica follows the queue that took over."""
    second = f"{there}-2"
    sync(queue, there)
    sync(queue, second)
    promote(Store.at(there), "q")
    sync(there, second)
    assert told(queue) == told(there) == told(second) == []


@pytest.mark.parametrize("once_more", [False, True])
def test_after_a_failback_nothing_is_wrong(queue: str, there: str, once_more: bool) -> None:
    """The store that was the standby knows the first primary as its own."""
    sync(queue, there)
    promote(Store.at(there), "q")
    assert told(queue) == told(there) == []
    partq.delete_queue(queue, "q")
    sync(there, queue)
    assert told(queue) == told(there) == []
    assert promote(Store.at(queue), "q").fenced
    assert told(queue) == told(there) == []
    if once_more:
        third = f"{there}-3"
        sync(queue, third)
        promote(Store.at(third), "q")
        assert told(queue) == told(there) == told(third) == []
