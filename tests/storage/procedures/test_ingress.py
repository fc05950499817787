"""Whether a queue takes messages, and what becomes of those that it does not take (S3)."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.storage.procedures.ingress import set_ingress
from spark_partq.storage.queue.control import QueueControl
from spark_partq.storage.queue.partition_table import PartitionTable
from tests.helpers import in_parallel, opened
from tests.scaled import Reader, Sink, assert_in_order, make, messages, stored

SETTINGS = ("off", "on", "including_when_shutdown")


def count(store: str) -> int:
    return sum(len(rows) for rows in stored(store).values())


def toggle(store: str, times: int) -> None:
    queue = opened(store)
    for _ in range(times):
        set_ingress(queue, not queue.state.ingress)


def test_egress_goes_on(store: str) -> None:
    """S3: consumers read what is there; producers are refused until ingress is enabled, and then write what was refused."""
    make(store, 2)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 20))
    assert not partq.set_ingress(store, "q", False).ingress
    with pytest.raises(
        partq.IngressDisabledError, match=r"its ingress is disabled.*Start the query, or run the command, again"
    ):
        sink.write(1, messages(20, 40))
    assert_in_order(reader.all(), messages(0, 20))
    assert partq.set_ingress(store, "q", True).ingress
    assert sink.write(1, messages(20, 40)) == 20
    assert_in_order(reader.all(), messages(0, 40))
    assert partq.describe_queue(store, "q").discarded == 0


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("sink_id", ["s", None])
def test_reject_to_sender(store: str, setting: str, sink_id: str | None) -> None:
    """S3: an error, or a counted discard; a batch with an id is counted once, one without each time."""
    make(store, 2, reject_to_sender=setting)
    sink = Sink(store, sink_id)
    partq.set_ingress(store, "q", False)
    for _ in range(2):
        if setting == "including_when_shutdown":
            with pytest.raises(partq.IngressDisabledError):
                sink.write(0, messages(0, 10))
        else:
            assert sink.write(0, messages(0, 10)) == 0
    lost = 0 if setting == "including_when_shutdown" else 10 if sink_id else 20
    assert partq.describe_queue(store, "q").discarded == lost and count(store) == 0
    partq.set_ingress(store, "q", True)
    assert sink.write(1, messages(10, 20)) == 10


def test_discarded_once_by_whoever_it_comes_from(store: str) -> None:
    """S3: another process of the sink, also at the same time; other sinks count for themselves; nothing is forgotten later."""
    make(store, 2, reject_to_sender="off")
    partq.set_ingress(store, "q", False)
    found = in_parallel([lambda: Sink(store).write(3, messages(0, 10)) for _ in range(4)])
    assert found == [0, 0, 0, 0]
    assert partq.describe_queue(store, "q").discarded == 10
    Sink(store, "t").write(3, messages(0, 4))
    Sink(store).write(4, messages(10, 13))
    with pytest.raises(partq.SinkAheadError):
        Sink(store).write(3, messages(0, 10))
    assert partq.describe_queue(store, "q").discarded == 17
    toggle(store, 80)  # the facts are merged meanwhile
    DeltaTable(f"{store}/queues/q/control").create_checkpoint()
    Sink(store).write(4, messages(10, 13))
    assert partq.describe_queue(store, "q").discarded == 17


def test_a_batch_that_was_discarded_is_not_stored(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3: not when ingress is enabled again, and not if its producer died before it counted it."""
    make(store, 2, reject_to_sender="off")
    partq.set_ingress(store, "q", False)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(QueueControl, "discard", dies)
        with pytest.raises(KeyboardInterrupt):
            Sink(store).write(0, messages(0, 10))
    partq.set_ingress(store, "q", True)
    for _ in range(2):
        assert Sink(store).write(0, messages(0, 12)) == 0
        assert partq.describe_queue(store, "q").discarded == 10 and count(store) == 0
    assert Sink(store).write(1, messages(12, 20)) == 8


def test_nothing_new(store: str) -> None:
    """S3: what is so already stays so, without a fact."""
    make(store, 1)
    before = opened(store).state.revision
    assert partq.set_ingress(store, "q", True).ingress
    assert opened(store).state.revision == before
    found = in_parallel([lambda: partq.set_ingress(store, "q", False).ingress for _ in range(4)])
    assert found == [False] * 4
    assert opened(store).state.revision == before + 1


def test_a_batch_that_has_begun_is_ended(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3, Q5: a batch is in as a whole or not at all, also if its process died half-way and ingress is disabled now."""
    make(store, 3, reject_to_sender="off")
    append = PartitionTable.append

    def half(self: PartitionTable, *args: Any) -> int | None:
        if self.partition == 2:
            raise KeyboardInterrupt
        return append(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionTable, "append", half)
        with pytest.raises(KeyboardInterrupt):
            Sink(store).write(0, messages(0, 30))
    partq.set_ingress(store, "q", False)
    before = count(store)
    assert 0 < before < 30
    assert Sink(store).write(0, messages(0, 30)) == 30 - before
    assert Sink(store).write(0, messages(0, 30)) == 0
    assert Sink(store).write(1, messages(30, 60)) == 0
    assert (count(store), partq.describe_queue(store, "q").discarded) == (30, 30)


def test_disabled_while_files_are_written(store: str) -> None:
    """S3: that counts if nothing of the batch is committed yet."""
    make(store, 2)
    with pytest.raises(partq.IngressDisabledError):
        Sink(store).write(0, messages(0, 30), begun=lambda: partq.set_ingress(store, "q", False))
    assert count(store) == 0


def test_while_the_map_changes(store: str) -> None:
    """S3: a live change leaves ingress alone."""
    make(store, 2)
    partq.set_ingress(store, "q", False)
    assert not partq.scale(store, "q", 4).ingress
    assert partq.set_ingress(store, "q", True).ingress
    assert Sink(store).write(0, messages(0, 30)) == 30
