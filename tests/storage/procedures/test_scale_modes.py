"""Scaling with the modes ``drain`` and ``delete`` (S2, S4)."""

from __future__ import annotations

import time
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.facts import QueueFact
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.procedures import drain, partition_map, scale
from spark_partq.storage.procedures.create import make_tables
from spark_partq.storage.procedures.remainder import ScaleProgress
from spark_partq.storage.queue.control import QueueControl
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import opened
from tests.scaled import Crash, Reader, Sink, assert_in_order, known, make, messages, stored, while_scaling


def kinds(store: str) -> list[str]:
    history = QueueControl(Store.at(store), "q").history()
    return [row["kind"] for row in history if row["kind"] not in ("QueueCreated", "PartitionsCreated", "GroupAttached")]


# ---- drain
@pytest.mark.parametrize("ingress", [True, False])
@pytest.mark.parametrize("count", [5, 1])
def test_drain(store: str, count: int, ingress: bool) -> None:
    """S4: one command: ingress ends, all is read, the count changes, the group rebalances, ingress is what it was."""
    make(store, 3)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 30))
    if not ingress:
        partq.set_ingress(store, "q", False)
    looks = []

    def look(waiting: ScaleProgress) -> None:
        looks.append((waiting.left, opened(store).state))

    found = while_scaling(
        lambda: partq.scale(store, "q", count, "drain", report=look), lambda: reader.turn() if looks else time.sleep(0)
    )
    assert not isinstance(found, BaseException), found
    assert looks[0][0] == 30
    assert all(not state.ingress for _, state in looks)
    assert (found.status, found.operating_partitions, found.scaling, found.ingress) == ("Ready", count, None, ingress)
    assert known(store) == list(range(count))
    assert_in_order(reader.seen, messages(0, 30))
    facts = ["ScalingStarted", "QueueDrained", "GenerationOpened", "PartitionsRemoved", "ScalingEnded"]
    assert kinds(store)[-5:] == facts if count == 1 else [*facts[:3], "ScalingEnded"]


def test_what_is_refused_while_it_is_drained(store: str) -> None:
    """S3, S4: producers get what the queue's setting says; nobody enables ingress meanwhile."""
    make(store, 3)
    sink = Sink(store)
    sink.write(0, messages(0, 30))
    Reader(store)
    with pytest.raises(partq.ScalingInProgressError, match="run it again to go on"):
        partq.scale(store, "q", 2, "drain", timeout_s=0)
    described = partq.describe_queue(store, "q")
    assert (described.status, described.scaling, described.ingress) == ("ScalingDown", "drain", False)
    assert (described.configured_partitions, described.operating_partitions) == (2, 3)
    with pytest.raises(partq.IngressDisabledError, match="nothing of this batch was written"):
        sink.write(1, messages(30, 40))
    for enabled in (True, False):
        with pytest.raises(partq.ScalingInProgressError, match="being drained"):
            partq.set_ingress(store, "q", enabled)
    with pytest.raises(partq.ScalingInProgressError, match="scale it to 3 to take the change back"):
        partq.scale(store, "q", 4, "drain")


@pytest.mark.parametrize("ingress", [True, False])
def test_a_drain_is_taken_back(store: str, ingress: bool) -> None:
    """S4: by scaling to the count that the queue has; all is as it was."""
    make(store, 3)
    sink = Sink(store)
    sink.write(0, messages(0, 30))
    reader = Reader(store)
    if not ingress:
        partq.set_ingress(store, "q", False)
    with pytest.raises(partq.ScalingInProgressError):
        partq.scale(store, "q", 2, "drain", timeout_s=0)
    found = partq.scale(store, "q", 3, "drain")
    assert (found.status, found.operating_partitions, found.ingress, found.generation) == ("Ready", 3, ingress, 0)
    if ingress:
        assert sink.write(1, messages(30, 40)) == 10
    assert_in_order(reader.all(), messages(0, 40 if ingress else 30))


def test_a_drain_that_was_interrupted_is_gone_on_with(store: str) -> None:
    """S4: whoever runs it again ends it, and knows that ingress was enabled."""
    make(store, 3)
    Sink(store).write(0, messages(0, 30))
    reader = Reader(store)
    with pytest.raises(partq.ScalingInProgressError):
        partq.scale(store, "q", 2, "drain", timeout_s=0)
    found = while_scaling(lambda: partq.scale(store, "q", 2, "drain"), reader.turn)
    assert (found.status, found.operating_partitions, found.ingress) == ("Ready", 2, True)
    assert kinds(store).count("ScalingStarted") == 1


@pytest.mark.parametrize(
    ("groups", "who"),
    [
        ([], "consumers"),
        (["a"], "consumers of group a"),
        (["a", "b"], "consumers of groups a, b"),
        (["a", "b", "c", "d", "e"], "consumers of groups a, b, c and 2 more"),
    ],
)
def test_a_drain_names_the_groups_that_are_behind(store: str, groups: list[str], who: str) -> None:
    """S4: those that have read all are not among them."""
    make(store, 2)
    Sink(store).write(0, messages(0, 10))
    for group in groups:
        Consumer(store, "i", group=group)
    if groups:
        done = Consumer(store, "i", group="done")
        for number in range(2):
            done.ack(number, opened(store).table(number).next_offset)
    queue = opened(store)
    scale.start(queue, 3, "drain")
    waiting = scale.step(queue)
    assert waiting is not None and waiting.what == f"{who} to acknowledge what is left"


def test_a_drain_waits_for_the_groups(store: str) -> None:
    """S4: ingress is enabled again when every group knows the new partitions and is Ready, also if the command died before it told them."""
    make(store, 4, rebalance_delay_ms=3_600_000, max_handoff_time_ms=3_600_000)
    reader, other = Reader(store, "a"), Reader(store, "b")
    queue = opened(store)
    scale.start(queue, 5, "drain")
    queue.control.decide(lambda _: [QueueFact("QueueDrained", {})])
    partition_map.open_generation(queue)
    assert known(store) == [0, 1, 2, 3] and opened(store).state.status == "Ready"
    assert scale.step(queue) == ScaleProgress("the rebalance of g", 1)  # a is to give one of its four
    assert known(store) == [0, 1, 2, 3, 4] and not queue.state.ingress
    assert scale.step(queue) is not None
    reader.turn()
    assert scale.step(queue) is None and queue.state.ingress
    other.turn()


def test_a_drain_waits_for_nobody_who_died(store: str) -> None:
    """S4: the command itself watches the group: a member whose session has expired gives its partitions to another."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    dead, alive = (Reader(store, name, session_timeout_ms=300) for name in ("dead", "alive"))

    def turn() -> None:
        alive.beat()
        alive.turn()

    found = while_scaling(lambda: partq.scale(store, "q", 3, "drain"), turn)
    assert not isinstance(found, BaseException), found
    assert_in_order(alive.seen, messages(0, 20))
    assert dead.seen == []


def test_a_look_from_before_does_not_drain(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S4: the drain that was found was taken back, messages came, and it began anew: they are waited for."""
    make(store, 2)
    sink, reader = Sink(store), Reader(store)
    queue = opened(store)
    scale.start(queue, 3, "drain")
    not_drained = drain.undrained

    def and_then(*args: Any) -> ScaleProgress | None:
        found = not_drained(*args)
        monkeypatch.setattr(drain, "undrained", not_drained)
        other = opened(store)
        scale.start(other, 2, "drain")
        sink.write(0, messages(0, 10))
        scale.start(other, 3, "drain")
        return found

    monkeypatch.setattr(drain, "undrained", and_then)
    assert scale.step(queue) is not None
    assert "QueueDrained" not in kinds(store)
    assert_in_order(reader.all(), messages(0, 10))


# ---- delete
def test_delete(store: str) -> None:
    """S2: at once, with exactly the count that was told; what stays is read, in order, and nobody waits for what was lost."""
    make(store, 4)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 40, keys=13))
    going = [row for n, rows in stored(store).items() if n >= 2 for row in rows]
    with pytest.raises(
        partq.InvalidArgumentError, match=f"lose {len(going)} messages.*nothing was confirmed"
    ) as refused:
        partq.scale(store, "q", 2, "delete")
    assert int(refused.value.params["lost"]) == len(going)
    with pytest.raises(partq.InvalidArgumentError, match=f"only {len(going) - 1} were confirmed"):
        partq.scale(store, "q", 2, "delete", confirm_lost=len(going) - 1)
    assert kinds(store) == []
    found = partq.scale(store, "q", 2, "delete", confirm_lost=len(going))
    assert (found.status, found.operating_partitions) == ("Ready", 2)
    (removed,) = [row for row in QueueControl(Store.at(store), "q").history() if row["kind"] == "PartitionsRemoved"]
    assert f'"lost": {len(going)}' in removed["body"]
    assert known(store) == [0, 1]
    sink.write(1, messages(40, 60, keys=13))
    assert_in_order(reader.all(), [row for row in messages(0, 60, keys=13) if row not in going])
    assert sum(opened(store).table(3).index.rows) == 0
    partq.scale(store, "q", 4)
    sink.write(2, messages(60, 80, keys=13))
    assert_in_order(reader.all(), [row for row in messages(0, 80, keys=13) if row not in going])


def test_delete_counts_what_was_read(store: str) -> None:
    """S2: only what not every group has acknowledged is lost."""
    make(store, 2)
    Sink(store).write(0, messages(0, 30))
    reader, other = Reader(store), Reader(store, group="other")
    reader.all()
    left = len(stored(store)[1])
    with pytest.raises(partq.InvalidArgumentError, match=f"lose {left} messages"):
        partq.scale(store, "q", 1, "delete")
    other.all()
    assert partq.scale(store, "q", 1, "delete").operating_partitions == 1


def test_delete_loses_no_more_than_was_confirmed(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: what comes in until the partitions are sealed was not confirmed: they are kept, until it is read or confirmed, too."""
    make(store, 2)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 20))
    before = len(stored(store)[1])

    def late(*args: Any) -> None:
        monkeypatch.setattr(partition_map, "make_tables", make_tables)
        sink.write(1, messages(20, 40))

    monkeypatch.setattr(partition_map, "make_tables", late)
    with pytest.raises(partq.InvalidArgumentError, match="only") as refused:
        partq.scale(store, "q", 1, "delete", confirm_lost=before)
    after = len(stored(store)[1])
    assert int(refused.value.params["lost"]) == after > before
    found = partq.describe_queue(store, "q")
    assert (found.status, found.operating_partitions) == ("ScalingDown", 2)
    with pytest.raises(partq.InvalidArgumentError):
        partq.scale(store, "q", 1, "delete", confirm_lost=before)
    reader.turn()
    assert partq.scale(store, "q", 1, "delete", confirm_lost=before).status == "Ready"
    assert_in_order(reader.all(), messages(0, 40))


def test_delete_settles_what_is_read(store: str) -> None:
    """S2: it ends the change of another one. Nothing is lost, for good: no owner goes back behind what was acknowledged."""
    make(store, 2)
    Sink(store).write(0, messages(0, 30))
    reader = Reader(store)
    reader.all()
    queue = opened(store)
    scale.start(queue, 1, "live")
    partition_map.open_generation(queue)
    end = queue.table(1).next_offset
    partq.scale(store, "q", 1, "delete")
    group = open_group(Store(store), "g")
    assert [row["offset"] for row in group.history() if row["kind"] == "Floor" and row["partition"] == 1][-1] == end


def test_a_look_from_before_removes_nothing(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: the partition that was seen drained has come back, was written, and goes again: what it holds now is waited for."""
    make(store, 2)
    sink, reader = Sink(store), Reader(store)
    queue = opened(store)
    scale.start(queue, 1, "live")
    partition_map.open_generation(queue)
    not_drained = drain.undrained

    def and_then(*args: Any) -> ScaleProgress | None:
        found = not_drained(*args)
        monkeypatch.setattr(drain, "undrained", not_drained)
        other = opened(store)
        for count in (2, 1):
            scale.start(other, count, "live")
            partition_map.open_generation(other)
            if count == 2:
                sink.write(0, messages(0, 30))
        return found

    monkeypatch.setattr(drain, "undrained", and_then)
    drain.remove_drained(queue)
    assert opened(store).state.removing == [1]
    assert_in_order(reader.all(), messages(0, 30))


@pytest.mark.parametrize(("before", "between"), [(2, 1), (0, 2)])
def test_what_was_lost_stays_lost(store: str, monkeypatch: pytest.MonkeyPatch, before: int, between: int) -> None:
    """S2: also if the process died before it removed the files, and the partition is used again."""
    make(store, before)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 20))
    kept = stored(store)[0] if before else []

    def crash(_: Any) -> int:
        raise Crash

    with monkeypatch.context() as patch:
        queue = opened(store)
        queue.control.decide(
            lambda _: [QueueFact("ScalingStarted", {"partitions": between, "mode": "delete", "confirmed": 20})]
        )
        patch.setattr(partition_map, "remove_files", lambda _: 0)
        partition_map.open_generation(queue)
        patch.setattr(scale, "remove_files", crash)
        with pytest.raises(Crash):
            scale.step(queue)
    partq.scale(store, "q", before)
    sink.write(1, messages(20, 30))
    assert_in_order(reader.all(), [*kept, *messages(20, 30)])
    assert_in_order(Reader(store, "late", group="h").all(), [*kept, *messages(20, 30)])


def test_a_group_that_is_deleted_and_created_again_meanwhile_is_watched(store: str) -> None:
    """S4: its member dies, and leaves the group though nobody else decides for it."""
    make(store, 3)
    Sink(store).write(0, messages(0, 30))
    Consumer(store, "a").leave()
    acts = [
        lambda: None,  # `scale` begins to watch the group
        lambda: partq.delete_group(store, "g"),
        lambda: Consumer(store, "b", session_timeout_ms=300),
    ]
    until = time.monotonic() + 60

    class Left(Exception):
        pass

    def look(_: ScaleProgress) -> None:
        if acts:
            acts.pop(0)()
        elif not open_group(Store(store), "g").state.members:
            raise Left
        assert time.monotonic() < until, "the dead member is still in the group"

    with pytest.raises(Left):
        partq.scale(store, "q", 5, "drain", report=look)
