"""Checks a group's history: every fact can follow the facts before it, and every snapshot agrees with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group import invariants, snapshot
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import instance_of
from spark_partq.core.invariants import InvariantError
from spark_partq.core.stored import MALFORMED, body_of
from spark_partq.storage.inspect.doctor.check import RESTORE_GROUP, Check, text_of
from spark_partq.storage.rows import Row

_FIELDS = [f.name for f in dataclasses.fields(GroupFact)]


def replay(check: Check, facts: Sequence[Row], snapshots: dict[int, str]) -> GroupState | None:
    """The state after all facts; None if they do not lead to one."""
    state = GroupState()
    for number, row in enumerate(facts):
        seq = int(row["seq"])
        if seq != number:
            what = f"fact {seq} is there twice" if seq < number else f"facts {number} to {seq - 1} are missing"
            check.fault(f"in its history {what}", RESTORE_GROUP)
            return None
        fact = GroupFact(**{name: row[name] for name in _FIELDS})
        try:
            _check_fact(state, fact)
            state.replay(fact)
        except (CorruptTableError, InvariantError, *MALFORMED) as error:
            text = text_of(error).partition(": the table was edited")[0]
            check.fault(f"{text}: fact {seq} or one before it was edited", RESTORE_GROUP)
            return None
        if state.seq in snapshots and not _check_snapshot(check, state, snapshots[state.seq]):
            return None
    beyond = [seq for seq in snapshots if seq > state.seq]
    if beyond:
        check.fault(f"its snapshot stands for {max(beyond)} facts, but there are {state.seq}", RESTORE_GROUP)
        return None
    return state


def _check_snapshot(check: Check, state: GroupState, body: str) -> bool:
    try:
        found = snapshot.from_json(body_of(body))
    except MALFORMED as error:
        check.fault(f"its snapshot of fact {state.seq} cannot be read ({error})", RESTORE_GROUP)
        return False
    if found == state:
        return True
    names = [f.name for f in dataclasses.fields(state) if getattr(found, f.name) != getattr(state, f.name)]
    check.fault(
        f"its snapshot of fact {state.seq} says something else than the facts before it ({', '.join(names)}): one of "
        "them was edited",
        RESTORE_GROUP,
    )
    return False


def _check_fact(state: GroupState, fact: GroupFact) -> None:
    """Check rules for a fact beyond the transitions that its replay checks (I4, I5, I7, I14)."""
    if fact.kind == Kind.ASSIGNMENT_COMPUTED:
        invariants.check_assignment(state, body_of(fact.body))
    if fact.kind not in (Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED):
        return
    own = state.partitions.get(fact.partition_id)
    if own is None or fact.offset is None or fact.delivered is None:
        return  # the replay refuses it
    before = max(own.start, state.floors.get(fact.partition_id, 0))
    if fact.offset < before:
        raise ValueError(f"the position of partition {fact.partition} goes back from {before} to {fact.offset}")
    if fact.delivered < fact.offset:
        raise ValueError(
            f"partition {fact.partition} was delivered up to {fact.delivered}, but acknowledged up to {fact.offset}"
        )
    if fact.kind == Kind.GRANTED:
        member = state.members.get(instance_of(fact.flow or ""))
        if member is None or fact.flow not in member.flow_names or fact.incarnation != member.incarnation:
            raise ValueError(f"partition {fact.partition} was granted to {fact.flow}, which is no flow of the group")
        if not state.subscribed(fact.flow, fact.partition_id):
            raise ValueError(
                f"partition {fact.partition} was granted to {fact.flow}, which does not read queue {fact.queue}"
            )
