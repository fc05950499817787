"""The rebalancer's decisions: events in, facts out.

``decide`` is pure, and any process may run it. The caller reads the control table up to some version and commits the facts as the
next version. If another process was first, the caller reads the table and decides again. Every event may come late or more than
once: one that no longer applies gives no facts. `core.group.steps` says what each event leads to.

A membership change triggers a *holddown* (R5); a change of the queues does not. Then the group's assignor computes which flow shall
own which partition. With the cooperative protocol (K5), partitions without an owner are granted at once, and partitions that move
are handed off: the owner plans no more of them, acknowledges what it was given, and releases them to their new owners in one commit.
All handoffs run at the same time. With the eager protocol (K4), all owners first give up everything, and no receiver is named. The
commit that releases the last partition computes the assignment for the members of that moment, and grants it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_partq.core.assignors import BUILTIN, Assignor
from spark_partq.core.errors import AssignorError, UnknownAssignorError
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.events import (
    AssignmentDue,
    DeadlinePassed,
    Delete,
    Drained,
    EndLineage,
    Event,
    HolddownOver,
    Isolate,
    Join,
    Leave,
    LoadsMeasured,
    Promoted,
    QueuesChanged,
    RaiseFloors,
    ReleaseKeys,
    Reset,
    Skip,
    Stateful,
    VoidResets,
)
from spark_partq.core.group.facts import GroupFact
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps import (
    dead_letters,
    handoff,
    holddown,
    joining,
    leaving,
    ownership,
    promotion,
    queue_changes,
    rebalancing,
    resetting,
)
from spark_partq.core.group.steps.decision import Decision, Loads

_ENDS_A_HANDOFF = (Drained, DeadlinePassed)


def decide(
    state: GroupState,
    acks: Acks,
    events: Sequence[Event],
    by: str = "",
    *,
    assignor: Callable[[str], Assignor] = BUILTIN.__getitem__,
    loads: Loads | None = None,
) -> list[GroupFact]:
    """The facts that follow from the events, in order.

    Parameters
    ----------
    state, acks
        Read together: a newer control table voids the decision, newer acknowledgements do not.
    by : str
        The process that decides, for the history.
    assignor : function
        Finds an assignor by its name.
    loads : dict
        The load of each partition, for assignors that use it.

    Raises
    ------
    GroupMismatchError
        If a ``Join`` disagrees with the group's other members.
    GroupActiveError
        If a group that has members is to be deleted, or its positions are to be set.
    KeysHeldError
        If the group would hold back too many keys.
    AssignorError, UnknownAssignorError
        If the group's assignor fails, or is not installed here, and there is nothing else to decide.
    """
    decision = Decision(state.copy(), acks, by, assignor, loads)
    has_join = any(isinstance(event, Join) for event in events)
    if not state.exists and not any(isinstance(event, (Join, Delete)) for event in events):
        return []  # the group was deleted; earlier events mean nothing
    failed: AssignorError | UnknownAssignorError | None = None
    for event, following in zip(events, [*events[1:], None], strict=False):
        try:
            _apply(decision, event)
            if isinstance(event, _ENDS_A_HANDOFF) and not isinstance(following, _ENDS_A_HANDOFF):
                handoff.advance_after(decision)
        except (AssignorError, UnknownAssignorError) as error:
            # Members must be able to leave and to release. The assignment stays due; the process that tries it next gets the error.
            failed = error
            if has_join:
                raise
    if failed is not None and not decision.facts:
        raise failed
    return decision.facts


def _apply(decision: Decision, event: Event) -> None:
    match event:
        case Join():
            joining.join(decision, event)
        case Leave():
            leaving.leave(decision, event)
        case Stateful():
            joining.stateful(decision, event)
        case HolddownOver():
            holddown.end(decision, event)
        case Drained():
            handoff.drained(decision, event)
        case DeadlinePassed():
            handoff.deadline_passed(decision, event)
        case QueuesChanged():
            queue_changes.queues_changed(decision, event)
        case AssignmentDue():
            rebalancing.advance(decision)
        case LoadsMeasured():
            rebalancing.loads_measured(decision)
        case RaiseFloors():
            ownership.raise_floors(decision, event)
        case Isolate():
            dead_letters.isolate(decision, event)
        case EndLineage():
            ownership.leave_to_others(decision, event)
        case Skip():
            dead_letters.skip(decision, event)
        case ReleaseKeys():
            dead_letters.release_keys(decision, event)
        case Promoted():
            promotion.begin_anew(decision, event)
        case Reset():
            resetting.reset(decision, event)
        case VoidResets():
            resetting.void(decision, event)
        case Delete():
            leaving.delete_group(decision)
