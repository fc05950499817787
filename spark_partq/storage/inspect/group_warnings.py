"""Warnings about a group for operators, from its members and its last facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_partq.core.group.advice import begun_anew, state_stays_behind
from spark_partq.core.group.facts import Kind, Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId, instance_of
from spark_partq.storage.inspect.heartbeats import Heartbeat
from spark_partq.storage.rows import Row


def group_warnings(group: str, state: GroupState, facts: Sequence[Row], beats: Mapping[str, Heartbeat]) -> list[str]:
    """Warnings about the members and the last facts of a group."""
    return [
        *_about_members(state),
        *_about_sessions(group, state, beats),
        *_about_checkpoints(state),
        *_about_state(state, facts),
        *_about_handoffs(state, facts),
    ]


def _about_members(state: GroupState) -> list[str]:
    if state.members:
        return []
    warning = "no query is in the group, so its messages are not read"
    if state.status is not Status.READY:
        warning += f", and its {state.status} does not end"
    return [f"{warning}. Start a query of the group, or see spark-partq history for why the last one left"]


def _about_sessions(group: str, state: GroupState, beats: Mapping[str, Heartbeat]) -> list[str]:
    """Warnings about members that have sent no heartbeat for their session timeout."""
    silent = sorted((beat.silent_s, instance) for instance, beat in beats.items() if beat.expired)
    if not silent:
        return []
    told = ", ".join(f"{instance} (silent for {silent_s:,.0f} s)" for silent_s, instance in silent)
    who = (
        f"the session of query {told} has expired"
        if len(silent) == 1
        else f"the sessions of queries {told} have expired"
    )
    if len(silent) < len(state.members):
        return [f"{who}: the other queries of the group take {'it' if len(silent) == 1 else 'them'} out"]
    return [
        f"{who}, and no other query is in the group, so its messages are not read. Start its queries again; until then spark-partq rebalance "
        f"--group {group} takes out the queries that have died"
    ]


def _about_checkpoints(state: GroupState) -> list[str]:
    anew = sorted(member.instance for member in state.members.values() if member.anew)
    return [begun_anew(anew)] if anew else []


def _about_state(state: GroupState, facts: Sequence[Row]) -> list[str]:
    """Warnings about partitions that came to or went from queries with keyed state, among the last facts."""
    owners: dict[PartitionId, str] = {}
    moved: dict[str, list[Row]] = {name: [] for name, member in state.members.items() if member.stateful}
    for row in facts:
        if row["kind"] not in (Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED) or row["flow"] is None:
            continue
        owner, before = instance_of(row["flow"]), owners.get((row["queue_id"], row["partition"]))
        owners[row["queue_id"], row["partition"]] = owner
        for instance in {owner, before} & moved.keys() if before not in (None, owner) else ():
            moved[instance].append(row)
    return [
        state_stays_behind(
            instance,
            sorted({(str(row["queue"]), int(row["partition"])) for row in rows}),
            f"{'once, on' if len(rows) == 1 else f'{len(rows)} times, the last on'} {rows[-1]['at'].isoformat(timespec='seconds')}",
        )
        for instance, rows in sorted(moved.items())
        if rows
    ]


def _about_handoffs(state: GroupState, facts: Sequence[Row]) -> list[str]:
    """Warnings about handoffs whose time ran out, among the last facts."""
    forced: dict[str, list[Row]] = {}
    ended: dict[str, int] = {}
    began: dict[PartitionId, tuple[int, str]] = {}  # number of the fact, and the giver
    joined: dict[str, int] = {}
    for row in facts:
        partition_id = (row["queue_id"], row["partition"])
        if row["kind"] == Kind.MEMBER_JOINED:
            joined[row["instance"]] = row["seq"]
        elif row["kind"] == Kind.HANDOFF_STARTED:
            began.setdefault(partition_id, (row["seq"], instance_of(row["flow"])))
        elif (
            row["kind"] in (Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED, Kind.HANDOFF_CANCELLED)
            and partition_id in began
        ):
            start, giver = began.pop(partition_id)
            taken = row["kind"] == Kind.GRANTED or (row["kind"] == Kind.UNASSIGNED and bool(row["forced"]))
            ended[row["queue_id"]] = ended.get(row["queue_id"], 0) + (taken or row["kind"] == Kind.RELEASED)
            # A giver that is started again has nothing left to drain, so its time did not run out.
            if taken and joined.get(giver, -1) < start:
                forced.setdefault(row["queue_id"], []).append(row)
    warnings = []
    for queue_id, rows in forced.items():
        queue = state.queues.get(queue_id)
        if queue is None or not queue.max_handoff_time_ms:  # 0 asks for forced handoffs
            continue
        twice = sum((row["delivered"] or 0) - (row["offset"] or 0) for row in rows)
        warnings.append(
            f"{len(rows)} of the last {ended[queue_id]} handoffs of queue {queue.name} were forced, because the partition's owner had not "
            f"acknowledged within {queue.max_handoff_time_ms} ms (last at {rows[-1]['at'].isoformat(timespec='seconds')}); "
            f"{twice} messages may have been delivered twice. Raise max_handoff_time_ms above the length of the micro-batches"
        )
    return warnings
