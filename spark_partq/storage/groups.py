"""A consumer group on disk: its control table (facts = history) and its acknowledgements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from pyarrow import fs

from spark_partq.core.errors import GroupNotFoundError
from spark_partq.core.group import GroupFact, GroupState, PartitionId, counted, floors
from spark_partq.storage.delta import retrying
from spark_partq.storage.rows import Row, RowTable, now
from spark_partq.storage.store import Store, group_folder

CONTROL_COLUMNS = (
    ("seq", "long"),  # 0, 1, 2… over the life of the group: the order of its history
    ("kind", "string"),
    ("queue", "string"),
    ("queue_id", "string"),
    ("partition", "integer"),
    ("offset", "long"),
    ("epoch_before", "long"),
    ("epoch", "long"),
    ("base_epoch", "long"),
    ("instance", "string"),
    ("incarnation", "string"),
    ("cause", "string"),
    ("at", "timestamp"),
)
ACK_COLUMNS = (
    ("queue_id", "string"),
    ("partition", "integer"),
    ("epoch", "long"),
    ("offset", "long"),
    ("incarnation", "string"),
    ("at", "timestamp"),
)
# After so many commits the acknowledgements are rewritten as one row per partition and epoch that still counts.
COMPACT_AFTER = 64

Acks = dict[tuple[PartitionId, int], int]
_FACT_FIELDS = [f.name for f in dataclasses.fields(GroupFact)]


class Group:
    """A group's state and acknowledgements as of the last look."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        folder = group_folder(name)
        self._control = RowTable(store, f"{folder}/control", f"the control table of group {name!r}", CONTROL_COLUMNS)
        self._acks = RowTable(store, f"{folder}/acks", f"the acknowledgements of group {name!r}", ACK_COLUMNS)
        self.state = GroupState()
        self.acks: Acks = {}

    def exists(self) -> bool:
        return self._control.exists()

    def refresh(self) -> None:
        """Look at both tables."""
        self.refresh_control()
        if self._acks.exists():
            self._acks.refresh()
            self.acks = counted(_ack(row) for row in self._acks.rows() if self._is_owner(row))

    def _is_owner(self, row: Row) -> bool:
        # The epoch alone would not do: a group that was deleted and made anew counts its epochs from the beginning.
        grant = self.state.grants.get((row["queue_id"], row["partition"]))
        return grant is not None and grant.incarnation == row["incarnation"]

    def refresh_control(self) -> None:
        """Look at the control table alone."""
        if self._control.refresh():
            self.state = GroupState()
            for row in self._control.rows():
                self.state.replay(GroupFact(**{name: row[name] for name in _FACT_FIELDS}))

    def position(self, where: PartitionId) -> int | None:
        return self.state.position(where, self.acks)

    def decide(self, decision: Callable[[], Sequence[GroupFact]]) -> list[GroupFact]:
        """Commit the facts that `decision` draws from the state, looking and deciding again after each lost race."""

        def attempt() -> list[GroupFact]:
            exists = self.exists()
            if exists:
                self.refresh()
            facts = list(decision())
            if facts:
                first, at = len(self._control.rows()), now()
                rows: list[Row] = [
                    {"seq": seq, **dataclasses.asdict(fact), "at": at} for seq, fact in enumerate(facts, first)
                ]
                (self._control.append if exists else self._control.create)(rows)
            return facts

        facts = retrying(attempt, f"a decision of group {self.name!r}")
        self.refresh()
        return facts

    def acknowledge(self, rows: Iterable[tuple[PartitionId, int, int]], incarnation: str) -> None:
        """Record (partition, epoch, offset) of a process: everything below the offset is finished."""
        at = now()
        new: list[Row] = [
            {"queue_id": q, "partition": p, "epoch": e, "offset": o, "incarnation": incarnation, "at": at}
            for (q, p), e, o in rows
        ]

        def attempt() -> None:
            if not self._acks.exists():
                self._acks.create(new)
                return
            self._acks.refresh()
            if len(self._acks.files) >= COMPACT_AFTER:
                self._acks.append(_compacted([*self._acks.rows(), *new]), replace=True)
            else:
                self._acks.append(new)

        retrying(attempt, f"an acknowledgement of group {self.name!r}")
        mine = counted(_ack(row) for row in new if self._is_owner(row))
        self.acks.update({ack: max(offset, self.acks.get(ack, 0)) for ack, offset in mine.items()})

    def raise_floors(self, queue_id: str) -> dict[int, int]:
        """Commit the group's positions as floors and return them per partition (see `core.group`)."""
        self.decide(lambda: floors(self.state, self.acks, queue_id))
        return {p: offset for (q, p), offset in self.state.floors.items() if q == queue_id}


def _ack(row: Row) -> tuple[PartitionId, int, int]:
    return (row["queue_id"], row["partition"]), row["epoch"], row["offset"]


def _compacted(rows: Sequence[Row]) -> list[Row]:
    """Of each partition the rows of the newest epoch, one per process; an older epoch never counts again."""
    newest: dict[PartitionId, int] = {}
    for where, epoch, _ in map(_ack, rows):
        newest[where] = max(epoch, newest.get(where, 0))
    best: dict[tuple[PartitionId, str], Row] = {}
    for row in sorted(rows, key=lambda row: int(row["offset"])):
        where, epoch, _ = _ack(row)
        if epoch == newest[where]:
            best[where, row["incarnation"]] = row
    return list(best.values())


def list_groups(store: Store) -> list[str]:
    """Names of the groups in the store, sorted."""
    store.check_exists()
    return [name for name in store.names("groups") if Group(store, name).exists()]


def open_group(store: Store, name: str) -> Group:
    """The group as it is now.

    Raises
    ------
    NotAStoreError, GroupNotFoundError
    """
    store.check_exists()
    group = Group(store, name)
    if not group.exists():
        known = ", ".join(list_groups(store)) or "none"
        raise GroupNotFoundError(
            f"there is no group {name!r} in {store.uri}; its groups: {known}", group=name, store=store.uri
        )
    group.refresh()
    return group


def groups_of(store: Store, queue_id: str) -> list[Group]:
    """The groups that have ever been granted a partition of this queue."""
    groups = [open_group(store, name) for name in list_groups(store)]
    return [g for g in groups if any(where[0] == queue_id for where in g.state.grants)]


def delete_group(store: Store, name: str) -> None:
    """Forget a group and its positions, so that retention no longer waits for it.

    Raises
    ------
    NotAStoreError, GroupNotFoundError
    """
    open_group(store, name)
    folder = group_folder(name)
    if store.files.get_file_info(folder).type == fs.FileType.Directory:
        store.files.delete_dir(folder)
