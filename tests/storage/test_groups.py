"""A group on disk: decisions by compare-and-set, acknowledgements that stay small (Q7, Q8)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.group import GroupFact, join
from spark_partq.storage.groups import COMPACT_AFTER, Group
from spark_partq.storage.store import Store
from tests.helpers import in_parallel

WHERE = ("id", 0)


@pytest.fixture
def at(store: str) -> Store:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    return Store.at(store)


def joined(group: Group, instance: str, incarnation: str | None = None) -> list[GroupFact]:
    return group.decide(
        lambda: join(
            group.state,
            instance,
            incarnation or instance,
            [("q", "id", 0), ("q", "id", 1)],
            group.acks,
            {("id", p): 0 for p in (0, 1)},
        )
    )


def history(at: Store) -> list[dict]:
    return DeltaTable(f"{at.uri}/groups/g/control").to_pyarrow_table().sort_by("seq").to_pylist()


def test_history(at: Store) -> None:
    """Q7: the control table says who got what, when, why and under which epochs; any Delta reader can read it."""
    group = Group(at, "g")
    joined(group, "a")
    group.acknowledge([(WHERE, 1, 5)], "a")
    joined(Group(at, "g"), "b")
    rows = history(at)
    assert [r["seq"] for r in rows] == [0, 1, 2, 3]
    assert [(r["partition"], r["epoch_before"], r["epoch"], r["offset"]) for r in rows] == [
        (0, 0, 1, 0), (1, 0, 1, 0), (0, 1, 2, 5), (1, 1, 2, 0)
    ]  # fmt: skip
    assert all(r["cause"] and r["at"] for r in rows)


def test_joins_at_once(at: Store) -> None:
    """Q7, W2: members that join at the same time get one epoch each; none decides on an old look."""
    groups = [Group(at, "g") for _ in range(6)]
    joined(groups[0], "first")
    for group in groups:
        group.refresh()
    results = in_parallel([lambda g=g, i=i: [joined(g, f"i{i}") for _ in range(5)] for i, g in enumerate(groups)])
    assert not [r for r in results if isinstance(r, BaseException)]
    rows = history(at)
    assert [r["seq"] for r in rows] == list(range(62))
    for partition in (0, 1):
        epochs = [r["epoch"] for r in rows if r["partition"] == partition]
        assert epochs == list(range(1, 32))
        assert [r["epoch_before"] for r in rows if r["partition"] == partition] == list(range(31))


def test_first_joins_at_once(at: Store) -> None:
    """Q7: so do those that make the group."""
    for n in range(5):
        groups = [Group(at, f"g{n}") for _ in range(4)]
        in_parallel([lambda g=g, i=i: joined(g, f"i{i}") for i, g in enumerate(groups)])
        last = Group(at, f"g{n}")
        last.refresh()
        assert last.state.grants[WHERE].epoch == 4


def test_acknowledgements_are_compacted(at: Store) -> None:
    """Q8: after many acknowledgements few files are left, and the positions are right throughout."""
    group, other = Group(at, "g"), Group(at, "g")
    joined(group, "a")
    for n in range(1, 2 * COMPACT_AFTER + 10):
        group.acknowledge([(WHERE, 1, n), (("id", 1), 1, 2 * n)], "a")
        if n % 40 == 0:
            other.refresh()
            assert (other.position(WHERE), other.position(("id", 1))) == (n, 2 * n)
    other.refresh()
    assert other.position(WHERE) == group.position(WHERE) == 2 * COMPACT_AFTER + 9
    assert DeltaTable(f"{at.uri}/groups/g/acks").get_add_actions().num_rows <= COMPACT_AFTER


def test_compaction_keeps_the_right_rows(at: Store) -> None:
    """Q8: the newest epoch of each partition stays, whatever the order; an old one never counts again."""
    group = Group(at, "g")
    joined(group, "a")
    for n in range(1, COMPACT_AFTER):
        group.acknowledge([(WHERE, 1, n)], "a")
    fresh = Group(at, "g")
    joined(fresh, "b")
    fresh.acknowledge([(WHERE, 2, 70)], "b")
    group.acknowledge([(WHERE, 1, 900)], "a")  # of a process that was fenced, and in the commit that compacts
    for reader in (Group(at, "g"), fresh):
        reader.refresh()
        assert reader.position(WHERE) == 70
        assert reader.position(("id", 1)) == 0
    rows = DeltaTable(f"{at.uri}/groups/g/acks").to_pyarrow_table().to_pylist()
    assert (0, 2, 70) in [(r["partition"], r["epoch"], r["offset"]) for r in rows]


def test_acknowledging_at_once(at: Store) -> None:
    """Q8: several acknowledge at the same time, through compactions; nothing is lost."""
    group = Group(at, "g")
    joined(group, "a")

    def acknowledge(partition: int) -> None:
        mine = Group(at, "g")
        for n in range(1, 41):
            mine.acknowledge([(("id", partition % 2), 1, n)], "a")

    assert in_parallel([lambda p=p: acknowledge(p) for p in range(4)]) == [None] * 4
    last = Group(at, "g")
    last.refresh()
    assert {w[1]: offset for (w, _), offset in last.acks.items()} == {0: 40, 1: 40}


def test_acknowledgement_never_goes_back(at: Store) -> None:
    """Q8: a lower offset after a higher one changes nothing."""
    group = Group(at, "g")
    joined(group, "a")
    group.acknowledge([(WHERE, 1, 9)], "a")
    group.acknowledge([(WHERE, 1, 4)], "a")
    last = Group(at, "g")
    last.refresh()
    assert last.position(WHERE) == group.position(WHERE) == 9


def test_deleted_group(at: Store) -> None:
    """Q8: a deleted group leaves nothing; one of the same name starts anew."""
    group = Group(at, "g")
    joined(group, "a")
    group.acknowledge([(WHERE, 1, 9)], "a")
    assert partq.list_groups(at.uri) == ["g"]
    partq.delete_group(at.uri, "g")
    assert partq.list_groups(at.uri) == [] and not (Path(at.uri) / "groups/g").exists()
    fresh = Group(at, "g")
    assert [f.epoch for f in joined(fresh, "a", "later")] == [1, 1] and fresh.position(WHERE) == 0
    group.acknowledge([(WHERE, 1, 9)], "a")  # a process that goes on, its group gone, and knows the same epoch
    fresh.refresh()
    assert fresh.position(WHERE) == 0
    fresh.acknowledge([(WHERE, 1, 2)], "later")
    fresh.refresh()
    assert fresh.position(WHERE) == 2


def test_damaged_control_table(at: Store) -> None:
    """Bad input: a fact that cannot be read is named."""
    joined(Group(at, "g"), "a")
    (file,) = (Path(at.uri) / "groups/g/control").glob("*.parquet")
    whole = file.read_bytes()
    for write in (lambda: file.write_bytes(b"x"), lambda: pq.write_table(pa.table({"seq": [0]}), file)):
        write()
        with pytest.raises(partq.CorruptTableError, match="control table of group 'g'"):
            Group(at, "g").refresh()
    file.write_bytes(whole)
    Group(at, "g").refresh()
