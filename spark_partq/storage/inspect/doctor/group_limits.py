"""Finds overdue handoffs and statuses of a group: no process ends them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from spark_partq.core.group.facts import PartitionState
from spark_partq.core.group.limits import Limit, handoff_limit, status_limit
from spark_partq.core.group.state import GroupState
from spark_partq.storage.inspect.doctor.check import Check
from spark_partq.storage.rows import Row


def check_limits(check: Check, group: str, state: GroupState, facts: Sequence[Row], now: dt.datetime) -> None:
    """Check each handoff, and the status, against its limit and the session timeout, after which another process should have ended it.

    A group without members waits for nothing.

    Parameters
    ----------
    facts
        All facts that led to `state`, in order.
    """
    if not state.members:
        return
    grace_ms = max(member.session_timeout_ms for member in state.members.values())

    def is_over(limit: Limit) -> bool:
        return limit.left_s([facts[limit.fact]], now, grace_ms) == 0

    draining = [id_ for id_, own in state.partitions.items() if own.state is PartitionState.DRAINING]
    late = sorted(
        (handoff_limit(state, id_).fact, state.queues[id_[0]].name, id_[1], id_)
        for id_ in draining
        if is_over(handoff_limit(state, id_))
    )
    status = status_limit(state)
    if late:
        told = [
            f"{queue}/{number}, which {state.partitions[id_].flow} gives up since {_at(facts[fact])}"
            for fact, queue, number, id_ in late[:3]
        ]
        more = f", and {len(late) - 3} more" if len(late) > 3 else ""
        what = f"a handoff should have ended (max_handoff_time_ms) and no query ends it: {'; '.join(told)}{more}"
    elif status is not None and is_over(status):
        what = (
            f"it is in {state.status} since {_at(facts[status.fact])}, because {state.trigger}, and no query ends that: {status.limit_ms:,} ms "
            "should have been enough"
        )
    else:
        return
    check.warn(what, f"start a query of the group, or end it by spark-partq rebalance --group {group}")


def _at(fact: Row) -> str:
    at: dt.datetime = fact["at"]
    return at.isoformat(timespec="seconds")
