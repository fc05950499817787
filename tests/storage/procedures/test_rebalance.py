"""A rebalancer of its own: a group progresses though no consumer is alive to decide (W1)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.assignors import Assignor
from spark_partq.core.errors import UnknownAssignorError
from spark_partq.core.group.facts import GroupFact
from spark_partq.storage.group import assignors
from spark_partq.storage.group.handle import list_groups
from spark_partq.storage.procedures import rebalance
from spark_partq.storage.procedures.rebalance import Rebalancer, run
from spark_partq.storage.store import Store
from tests.clocks import monotonic_clock
from tests.groups import Consumer


@pytest.fixture
def queue(store: str) -> str:
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=2_000, max_handoff_time_ms=1_000)
    return store


class Watch:
    """A rebalancer with a clock that the test sets."""

    def __init__(self, store: str, group: str | None = None) -> None:
        self.rebalancer = Rebalancer(Store.at(store), group)
        self.ms = 0
        self.facts: list[tuple[str, GroupFact]] = []

    def until(self, ms: int, each: Callable[[], object] = lambda: None) -> list[str]:
        """Step every second until then; the kinds of facts that were decided."""
        before = len(self.facts)
        while self.ms < ms:
            each()
            self.ms += 1_000
            with monotonic_clock(self.ms):
                for name, facts in self.rebalancer.step():
                    self.facts += [(name, fact) for fact in facts]
        return [fact.kind for _, fact in self.facts[before:]]


def test_holddown_and_handoff_go_on_without_anybody(queue: str) -> None:
    """W1, R5, H4: it ends the holddown, and forces a handoff that its owner does not finish."""
    a = Consumer(queue, "a")
    b = Consumer(queue, "b")

    def beat() -> None:
        a.beat()
        b.beat()

    watch = Watch(queue)
    assert watch.until(2_000, beat) == []
    assert watch.until(3_000, beat) == ["StatusChanged", "AssignmentComputed", "HandoffStarted", "HandoffStarted"]
    assert watch.until(5_000, beat) == ["Granted", "Granted", "StatusChanged"]
    assert watch.rebalancer.settled
    assert {fact.by for _, fact in watch.facts} == {watch.facts[0][1].by} and "rebalancer" in watch.facts[0][1].by
    assert partq.describe_group(queue, "g").status == "Ready"


def test_dead_members_are_taken_out(queue: str) -> None:
    """W1, R4: one that is silent for its session timeout goes; one that beats stays and gets everything."""
    a = Consumer(queue, "a", session_timeout_ms=4_000)
    b = Consumer(queue, "b", session_timeout_ms=4_000)
    b.end_holddown()
    a.release()
    watch = Watch(queue)
    watch.until(4_000, a.beat)
    assert not watch.rebalancer.settled  # b is neither seen alive nor gone
    assert "MemberLeft" in watch.until(6_000, a.beat)
    watch.until(9_000, a.beat)
    assert watch.rebalancer.settled
    found = partq.describe_group(queue, "g")
    assert [m.instance for m in found.members] == ["a"] and found.unassigned == 0


def test_a_group_whose_last_member_died(queue: str) -> None:
    """R7: it comes to rest, Ready with nobody in it."""
    Consumer(queue, "a", session_timeout_ms=1_000)
    watch = Watch(queue, "g")
    watch.until(6_000)
    found = partq.describe_group(queue, "g")
    assert (found.status, found.members, found.unassigned) == ("Ready", (), 4)
    assert watch.rebalancer.settled


@pytest.mark.parametrize("do", ["rebalance", "delete-group"])
def test_members_died_while_no_assignor_could_assign(store: str, do: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R7: an assignment is due, which fails here. When the sessions of all are over nobody needs one."""
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=0)
    found = assignors.find

    def find(name: str) -> Assignor:
        if name == "cooperative-sticky":
            raise UnknownAssignorError(f"there is no assignor {name!r}", assignor=name)
        return found(name)

    a = Consumer(store, "a", session_timeout_ms=400, assignors=("cooperative-sticky",))
    b = Consumer(store, "b", session_timeout_ms=400, assignors=("cooperative-sticky",))
    monkeypatch.setattr(assignors, "find", find)
    b.expire()
    assert a.group.refresh() and a.group.state.assignment_due
    if do == "delete-group":
        partq.delete_group(store, "g")
    else:
        run(Rebalancer(Store.at(store), "g"), 0.1, lambda s: bool(time.sleep(s)), lambda _, __: None)
        assert partq.describe_group(store, "g").members == ()


def test_an_assignor_that_fails_while_a_member_is_alive(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is told when every other session is over."""
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=0)
    a = Consumer(store, "a", session_timeout_ms=400, assignors=("cooperative-sticky",))
    Consumer(store, "b", session_timeout_ms=400, assignors=("cooperative-sticky",))
    monkeypatch.setattr(
        assignors, "find", mock.Mock(side_effect=UnknownAssignorError("there is none", assignor="range"))
    )

    def wait(seconds: float) -> bool:
        a.beat()
        return bool(time.sleep(seconds))

    with pytest.raises(UnknownAssignorError):
        run(Rebalancer(Store.at(store), "g"), 0.1, wait, lambda _, __: None)


def test_nothing_is_decided_in_a_replica(queue: str, tmp_path: Path) -> None:
    """S7: its groups are copies, too: a member whose session is over stays there, until it is over at the primary."""
    copy = str(tmp_path / "copy")
    Consumer(queue, "a", session_timeout_ms=1_000)
    partq.replicate(queue, "q", copy)
    before = {path: path.read_bytes() for path in Path(copy).rglob("*") if path.is_file()}
    assert Watch(copy).until(12_000) == []
    assert {path: path.read_bytes() for path in Path(copy).rglob("*") if path.is_file()} == before
    assert [member.instance for member in partq.describe_group(copy, "g").members] == ["a"]
    assert "MemberLeft" in Watch(queue).until(12_000)


def test_members_of_a_group_are_taken_out_where_one_of_its_queues_was_promoted(queue: str, tmp_path: Path) -> None:
    """S7: the group is used there, though another of its queues is a replica yet. So a reset waits no longer than a session."""
    copy = str(tmp_path / "copy")
    partq.create_queue(queue, "p", "v long", partitions=1)
    Consumer(queue, "a", queues=("p", "q"))
    for name in ("p", "q"):
        partq.replicate(queue, name, copy)
    shutil.rmtree(queue)
    partq.promote(copy, "p")
    Consumer(copy, "b", queues=("p",), session_timeout_ms=1_000)
    assert "MemberLeft" in Watch(copy).until(12_000)
    assert partq.describe_group(copy, "g").members == ()
    assert [reset.queue for reset in partq.reset_offsets(copy, "g", "earliest", queues=["p"])] == ["p"]


def test_groups_that_are_made_and_deleted_meanwhile(queue: str) -> None:
    """W1: all groups, also those that are made later or created again; a deleted one is forgotten."""
    Consumer(queue, "a", group="first", session_timeout_ms=1_000)
    watch = Watch(queue)
    watch.until(1_000)
    partq.delete_group(queue, "first")
    Consumer(queue, "a", group="second", session_timeout_ms=1_000)
    watch.until(12_000)
    assert {name for name, _ in watch.facts} == {"second"}
    assert [group.name for group in watch.rebalancer.groups] == ["second"]
    partq.delete_group(queue, "second")
    Consumer(queue, "a", group="second", session_timeout_ms=1_000)
    assert "MemberLeft" in watch.until(24_000)


def test_groups_are_listed_every_five_seconds(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """W1: not at every step, as a list of many groups is dear."""
    watch, listed = Watch(queue), list[int]()

    def noted(store: Store) -> list[str]:
        listed.append(watch.ms)
        return list_groups(store)

    monkeypatch.setattr(rebalance, "list_groups", noted)
    watch.until(12_000)
    assert listed == [1_000, 6_000, 11_000]


def test_one_broken_group_does_not_stop_the_others(queue: str) -> None:
    """W1: its error is told, the others go on."""
    Consumer(queue, "a", group="broken")
    Consumer(queue, "a", group="whole", session_timeout_ms=1_000)
    told: list[str] = []
    decided: list[str] = []
    next(Path(queue, "groups/broken/control").glob("*.parquet")).write_bytes(b"x")
    left = iter([False] * 80)
    run(
        Rebalancer(Store.at(queue)),
        0.05,
        lambda seconds: time.sleep(seconds) or next(left, True) or bool(decided),
        lambda name, facts: decided.append(name),
        lambda error: told.append(error.error_class),
    )
    assert set(decided) == {"whole"}
    assert told == ["CORRUPT_TABLE"]


def test_a_group_or_store_that_is_not_there(queue: str, tmp_path: Path) -> None:
    """Bad input: refused at once; and a named group that is deleted ends the watch."""
    with pytest.raises(partq.GroupNotFoundError):
        Rebalancer(Store.at(queue), "g")
    with pytest.raises(partq.NotAStoreError):
        Rebalancer(Store.at(tmp_path / "nothing"))
    Consumer(queue, "a")
    watcher = Rebalancer(Store.at(queue), "g")
    shutil.rmtree(Path(queue, "groups/g"))
    with pytest.raises(partq.GroupNotFoundError):
        run(watcher, 0.01, lambda _: False, lambda *_: None, lambda _: None)


def test_a_store_without_groups_is_settled(queue: str) -> None:
    watcher = Rebalancer(Store.at(queue))
    run(watcher, 0.01, lambda _: pytest.fail("it waits for nothing"), lambda *_: None)
    assert watcher.groups == []


def test_acknowledgements_that_cannot_be_read_are_reported(queue: str) -> None:
    """W1: nobody can tell by them who is alive, so nothing is settled."""
    Consumer(queue, "a").beat()
    for path in Path(queue, "groups/g/acks").glob("*.parquet"):
        path.write_bytes(b"")
    rebalancer = Rebalancer(Store.at(queue))
    with pytest.raises(partq.CorruptTableError, match="the acknowledgements of group 'g'"):
        run(rebalancer, 0.01, lambda _: False, lambda *_: None)
    assert not rebalancer.settled
    told: list[partq.PartqError] = []
    run(rebalancer, 0.01, lambda _: bool(told), lambda *_: None, told.append)
