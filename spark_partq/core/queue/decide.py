"""Decisions about a queue: each takes its newest state, and what was measured, and returns the facts that follow.

Each function is pure, and any process may call it. It is called on the newest state, and its facts are committed as the next version of
the control table. If another process was first, nothing is committed, and the function is called again on the newer state. Each decision
may come late or more than once: one that no longer applies gives no facts. `core.queue.state` says which fact may come when.

A measurement on an earlier state is passed together with that state, or with the generation that was in force, as it may no longer be
true.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from spark_partq.core import format
from spark_partq.core.errors import InvalidArgumentError, ScalingInProgressError
from spark_partq.core.payload.keys import DEFAULT_HASH, KeyHash
from spark_partq.core.payload.schema import Struct
from spark_partq.core.queue.facts import Kind, Mode, QueueFact
from spark_partq.core.queue.scaling import Remainder, Scaling
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState

Facts = Sequence[QueueFact]
_NOTHING: Facts = ()


# ---- its life
def create(
    queue_id: str,
    schema: Struct,
    key: Iterable[str],
    partition_count: int,
    settings: QueueSettings,
    key_hash: KeyHash = DEFAULT_HASH,
) -> Facts:
    """Begin a queue; its tables do not exist yet.

    A queue whose hash is not the default needs a feature of the format, as an older program would place its keys elsewhere. Some settings
    need one, too.

    Raises
    ------
    InvalidArgumentError
        If the settings name a column that does not exist, or has another type.
    """
    needed = [format.MURMUR2] * (key_hash == "murmur2") + [*settings.features]
    body = {
        "queue_id": queue_id,
        "schema": schema,
        "key": list(key),
        "partitions": partition_count,
        "settings": settings.check_columns(schema).model_dump(),
        **format.of_new_tables(*needed).body(),
    }
    if key_hash != DEFAULT_HASH:
        body["key_hash"] = key_hash
    return [QueueFact(Kind.QUEUE_CREATED, json.loads(json.dumps(body)))]


def finish_creation(state: QueueState) -> Facts:
    """All tables of the first map exist. Another process may have recorded this before, or may have deleted the queue."""
    if state.generations or state.deleted:
        return _NOTHING
    return [QueueFact(Kind.PARTITIONS_CREATED, {"partitions": state.configured_partitions})]


def delete(state: QueueState) -> Facts:
    return _NOTHING if state.deleted else [QueueFact(Kind.QUEUE_DELETED, {})]


def begin_deleted(queue_id: str) -> Facts:
    """Begin a queue that is being deleted, of which nothing but the id is known: the column stands for its columns."""
    column = {"name": "unknown", "type": "string", "nullable": True, "metadata": {}}
    created = create(queue_id, {"type": "struct", "fields": [column]}, (), 1, QueueSettings.parse({}))
    return [*created, QueueFact(Kind.QUEUE_DELETED, {})]


# ---- its partition count
def start_scaling(
    state: QueueState,
    partition_count: int,
    mode: Mode,
    remainder: Remainder | None = None,
    confirm_lost: int | None = None,
    finished: bool = False,
) -> Facts:
    """Change the count; or, if a change is under way, go on with the same change, or take it back.

    Parameters
    ----------
    remainder : Remainder
        With mode ``delete``: what the partitions hold that a map of this count does not name.
    confirm_lost : int, optional
        With mode ``delete``: how many messages may be lost at most.
    finished : bool
        A step that an interrupted change had left was just done. Then it is no error to ask for the count that the queue has.

    Raises
    ------
    InvalidArgumentError
        If there is nothing to change, if more messages would be lost than were confirmed, or if the queue may not be drained.
    ScalingInProgressError
        If another change is under way.
    """
    if not state.usable or state.fenced_by is not None:
        return _NOTHING
    if state.scaling is not None:
        return _go_on_scaling(state, partition_count, mode)
    if mode == "drain":
        _check_may_drain(state)
    remainder = remainder or Remainder()
    if mode == "delete":
        _check_confirmed(state, remainder.unread, confirm_lost)
    if partition_count != state.partition_count:
        _check_not_copying(state, partition_count)
        confirmed = {"confirmed": confirm_lost or 0} if mode == "delete" else {}
        return [QueueFact(Kind.SCALING_STARTED, {"partitions": partition_count, "mode": mode, **confirmed})]
    if state.removing and mode == "delete":
        return _removal(remainder.ends, lost=remainder.unread)
    if not state.removing and not finished:
        raise InvalidArgumentError(
            f"queue {state.name!r} has {partition_count} partitions already, and no change of the count is left to finish",
            queue=state.name,
            partitions=partition_count,
            has=partition_count,
        )
    return _NOTHING  # an interrupted change is now ended


def _or_back(state: QueueState, scaling: Scaling) -> str:
    """For the end of an advice: a change that has not drained yet can be taken back."""
    return "" if scaling.drained else f", or scale it to {state.partition_count} to take the change back"


def _go_on_scaling(state: QueueState, partition_count: int, mode: Mode) -> Facts:
    """A change is under way. The same change goes on; a change that has not drained yet can be taken back."""
    scaling = state.scaling
    if scaling is None or (partition_count, mode) == (scaling.partition_count, scaling.mode):
        return _NOTHING
    if partition_count == state.partition_count and not scaling.drained:
        return cancel_scaling(state)
    raise ScalingInProgressError(
        f"queue {state.name!r} is being scaled to {scaling.partition_count} partitions (mode {scaling.mode}); wait for that change, or run "
        f"it again if it was interrupted{_or_back(state, scaling)}",
        queue=state.name,
        partitions=scaling.partition_count,
        mode=scaling.mode,
    )


def _check_may_drain(state: QueueState) -> None:
    """
    Raises
    ------
    InvalidArgumentError
        If a drain would wait for messages that no group removes, or would remove messages that `min_retention_ms` keeps.
    """
    if state.holds_dead_messages:
        why = (
            "holds dead messages, which stay when groups have read them: a drain would take no dead messages until retention_ms or max_bytes has "
            "removed these. Use mode live"
        )
    elif state.removing and state.settings.min_retention_ms:
        why = (
            "still has partitions that an earlier change of the count removes once min_retention_ms is over, and a drain would remove them at once. "
            "Wait for that, use mode live, or set a shorter min_retention_ms"
        )
    else:
        return
    raise InvalidArgumentError(f"queue {state.name!r} {why}", queue=state.name, mode="drain")


def _check_confirmed(state: QueueState, lost: int, confirmed: int | None) -> None:
    if lost and (confirmed is None or confirmed < lost):
        known = "nothing was confirmed" if confirmed is None else f"only {confirmed} were confirmed"
        raise InvalidArgumentError(
            f"mode delete would lose {lost} messages of queue {state.name!r} that not every group has acknowledged, and {known}; "
            f"confirm_lost={lost} accepts that, and mode live loses none",
            queue=state.name,
            lost=lost,
        )


def _check_not_copying(state: QueueState, partition_count: int) -> None:
    if partition_count == 0 and state.copying is not None:
        raise ScalingInProgressError(
            f"the stuck messages in the parent of queue {state.name!r} are being copied into its partitions, so the queue cannot become "
            "exclusive now; run copy_stuck again to finish the copy",
            queue=state.name,
        )


def cancel_scaling(state: QueueState) -> Facts:
    """Take back a change that has not drained yet."""
    if not state.usable or state.scaling is None or state.scaling.drained:
        return _NOTHING
    return [QueueFact(Kind.SCALING_CANCELLED, {})]


def finish_draining(state: QueueState, measured: QueueState) -> Facts:
    """Mode ``drain``: in the state `measured` every group had settled everything. So the count may change, unless the state has changed since."""
    draining = state.usable and state.scaling is not None and not state.scaling.drained
    return [QueueFact(Kind.QUEUE_DRAINED, {})] if draining and state.revision == measured.revision else _NOTHING


def open_generation(
    state: QueueState, generation: int, cuts: Mapping[int, int], remainder: Remainder | None = None
) -> Facts:
    """Put the next map in force, as all tables of both maps are sealed under `generation`.

    Parameters
    ----------
    cuts : dict
        For each sealed table, its next offset when it was sealed.
    remainder : Remainder, optional
        With mode ``delete``: what the partitions hold that the next map does not name. These partitions are removed at once, unless more
        messages would be lost than was confirmed; then they are drained.
    """
    if not may_open_generation(state) or state.generation != generation or state.scaling is None:
        return _NOTHING
    scaling = state.scaling
    opened = QueueFact(Kind.GENERATION_OPENED, {"partitions": scaling.partition_count, "cuts": dict(cuts)})
    if scaling.mode != "delete" or remainder is None:
        return [opened]
    may_be_lost = scaling.confirmed is None or remainder.unread <= scaling.confirmed
    return [opened, *_removal(remainder.ends, lost=remainder.unread)] if may_be_lost else [opened]


def may_open_generation(state: QueueState) -> bool:
    """Whether the tables may be sealed and the next map put in force. Not if a replica has taken over, as it would not know of the map."""
    scaling = state.scaling
    return state.usable and state.fenced_by is None and scaling is not None and scaling.drained and not scaling.opened


def remove_drained(state: QueueState, measured: QueueState, ends: Mapping[int, int]) -> Facts:
    """Remove partitions that the map no longer names and that every group had settled in the state `measured`, unless the state has changed since.

    Partitions may have come back, and be written again; a group may have attached, begun again or gone back, and want the messages; a setting, or
    the end of a change with mode ``drain``, may keep the messages for longer.

    Parameters
    ----------
    ends : dict
        For each partition to be removed, its next offset.
    """
    same = state.revision == measured.revision and state.removing == list(ends)
    return _removal(ends, lost=0) if ends and state.usable and same else _NOTHING


def _removal(ends: Mapping[int, int], lost: int) -> Facts:
    return [QueueFact(Kind.PARTITIONS_REMOVED, {"ends": dict(ends), "lost": lost})]


def end_scaling(state: QueueState, measured: QueueState) -> Facts:
    """Mode ``drain``: in the state `measured` the groups had rebalanced, so ingress becomes what it was before, unless another change is under way."""
    opened = state.usable and state.scaling is not None and state.scaling.opened
    return [QueueFact(Kind.SCALING_ENDED, {})] if opened and state.generation == measured.generation else _NOTHING


# ---- its ingress
def set_ingress(state: QueueState, enabled: bool) -> Facts:
    """Disable or enable ingress. No fact if ingress is in that state already.

    Raises
    ------
    ScalingInProgressError
        If the queue is being drained: draining itself disables ingress and enables it again.
    """
    if state.scaling is not None and state.scaling.mode == "drain":
        wanted = state.scaling.partition_count
        raise ScalingInProgressError(
            f"queue {state.name!r} is being drained to change its partition count to {wanted}. The drain disables ingress, and enables it again at "
            f"its end. Wait for that; if the change was interrupted, run it again (spark-partq scale {state.name} {wanted} --mode drain)"
            f"{_or_back(state, state.scaling)}",
            queue=state.name,
            partitions=wanted,
        )
    if not state.usable or state.ingress == enabled:
        return _NOTHING
    return [QueueFact(Kind.INGRESS_ENABLED if enabled else Kind.INGRESS_DISABLED, {})]


# ---- the groups that read it
def is_attached(state: QueueState, group: str, deletions: int) -> bool:
    """Whether the group of that name is attached after this number of deletions, or after a later one."""
    return state.groups.get(group, -1) >= deletions


def attach_group(state: QueueState, group: str, deletions: int) -> Facts:
    """Keep all messages that the group wants, from now on. The group attaches before it reads where to start.

    Nothing is decided if a replica has taken over, as it would not know of the group, nor of the messages that the group is given here.

    Parameters
    ----------
    deletions : int
        How often a group of that name was deleted before (`GroupState.deletions`).
    """
    if not state.usable or state.fenced_by is not None or is_attached(state, group, deletions):
        return _NOTHING
    return [QueueFact(Kind.GROUP_ATTACHED, {"group": group, "deletions": deletions})]


def detach_group(state: QueueState, group: str, deletions: int) -> Facts:
    """Stop waiting for a deleted group. A newer group of that name stays attached.

    Parameters
    ----------
    deletions : int
        How often the group has been deleted by now.
    """
    attached = state.groups.get(group, deletions)
    if not state.usable or attached >= deletions:
        return _NOTHING
    return [QueueFact(Kind.GROUP_DETACHED, {"group": group, "deletions": attached})]
