"""What a group leaves in its store does not grow with its age, except the archives of its history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import spark_partq as partq
from spark_partq.core.group.acks import AckRow
from spark_partq.storage.group import ack_table, control
from spark_partq.storage.group.control import ARCHIVE, FACTS, HISTORY, SNAPSHOT, kind_of
from spark_partq.storage.group.handle import Group
from spark_partq.storage.log import folder, table
from spark_partq.storage.store import Store
from tests.fuzz.runtime import Repeatable
from tests.groups import Consumer

ROUNDS, FEW = 1_000, 8
CHECKPOINT_EVERY, CLEAN_UP_EVERY, VACUUM_EVERY = 25, 50, 20
HOUR_MS = 3_600_000
HOUR = 20  # rounds
# The most of each: of what the last hour brought, two files a round, and what is only removed now and then.
BOUNDS = {
    FACTS: FEW,
    HISTORY: FEW,
    SNAPSHOT: 1,
    ARCHIVE: ROUNDS // FEW**2,  # these stay: they are the history
    "acks": FEW,
    "log of control": CLEAN_UP_EVERY + 2 * CHECKPOINT_EVERY,
    "log of acks": CLEAN_UP_EVERY + 2 * CHECKPOINT_EVERY,
    "stored in control": 2 * (HOUR + VACUUM_EVERY) + 2 * FEW,
    "stored in acks": 2 * (HOUR + VACUUM_EVERY) + 2 * FEW,
}


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MERGE_AFTER", FEW)
    monkeypatch.setattr(control, "ARCHIVE_AFTER", FEW)
    monkeypatch.setattr(ack_table, "COMPACT_AFTER", FEW)
    monkeypatch.setattr(folder, "CLEAN_UP_EVERY", CLEAN_UP_EVERY)
    monkeypatch.setattr(table, "CHECKPOINT_INTERVALS", (CHECKPOINT_EVERY, CHECKPOINT_EVERY))


def counts(group: Group) -> Counter[str]:
    """Live files by kind, entries of logs, and all files that are stored."""
    found = Counter(kind_of(path) for path in group._control._log.snapshot.files)
    found["acks"] = len(group._acks._table.files)
    for name, place in (("control", group._control._log.folder), ("acks", group.acks_folder)):
        found[f"log of {name}"] = len(group.store.files.list_files(f"{place}/_delta_log"))
        found[f"stored in {name}"] = len(group.store.files.list_files(place))
    found["stored in control"] -= found[ARCHIVE]
    return found


def rounds(count: int) -> Iterator[tuple[int, Consumer]]:
    """A member acknowledges a message in each round, and that becomes a floor."""
    runtime = Repeatable()
    store = Store.over(runtime.open_files("store", {}), runtime)
    partq.create_queue(store, "q", "v bigint", partitions=1)
    consumer = Consumer(store, "a")
    group, partition_id = consumer.group, consumer.partition_id(0)
    for n in range(1, count + 1):
        runtime._now_ns += HOUR_MS * 1_000_000 // HOUR
        group.acknowledge([AckRow(consumer.incarnation, n, *partition_id, 1, n, n)])
        group.raise_floors(partition_id[0])
        if n % VACUUM_EVERY == 0:
            group.vacuum(HOUR_MS)
        yield n, consumer


def test_files_stay_as_few_as_they_are(short_limits: None) -> None:
    """The second half of some thousand commits leaves no more files than the first, but for the archives of the history."""
    halves: list[Counter[str]] = [Counter(), Counter()]
    for n, consumer in rounds(ROUNDS):
        halves[n > ROUNDS / 2] |= counts(consumer.group)
    group = consumer.group
    assert group.state.floors == {consumer.partition_id(0): ROUNDS}
    assert all(half[kind] <= most for half in halves for kind, most in BOUNDS.items()), halves
    first, second = halves
    assert first.keys() == BOUNDS.keys()
    assert second - first == {ARCHIVE: second[ARCHIVE] - first[ARCHIVE]}
    assert len(group.history()) > ROUNDS


@pytest.mark.parametrize("ahead_h", [23, 366 * 24])
def test_a_member_whose_clock_is_ahead(short_limits: None, monkeypatch: pytest.MonkeyPatch, ahead_h: int) -> None:
    """It says that files were removed in the future; they are not kept until then."""
    now_ms = Store.now_ms
    monkeypatch.setattr(Store, "now_ms", lambda store: now_ms(store) + ahead_h * HOUR_MS)
    most: Counter[str] = Counter()
    for _, consumer in rounds(ROUNDS // 4):
        most |= counts(consumer.group)
    assert all(most[kind] <= BOUNDS[kind] for kind in ("stored in acks", "stored in control")), most
