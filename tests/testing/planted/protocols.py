"""Assignors, the eager protocol, and queues that come and go: the simulation has one queue, so most are caught by tests of decisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from spark_partq.core.group import choice
from spark_partq.core.group.events import AssignmentDue
from spark_partq.core.group.facts import GroupFact, Kind, PartitionState, Protocol, Status
from spark_partq.core.group.steps import ownership, queue_changes, rebalancing
from tests.core.group import test_every_order as orders
from tests.core.group import test_observer as timers
from tests.core.group import test_protocols as protocols
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import listing, moves, shared

STEPS = "core.group.steps"
eager = listing(("range",))
mixed = listing(("cooperative-sticky", "range"), ("cooperative-sticky",), ("range", "cooperative-sticky"))


# ---- the eager protocol
@bug(f"{STEPS}.rebalancing:advance", moves, eager)
def an_eager_rebalance_assigns_before_all_is_revoked(original, decision):
    """Partitions are granted while others still have theirs."""
    original(decision)
    if decision.state.assignment_due and decision.state.revoking:
        rebalancing.assign(decision, *choice.choose(decision.state.members.values()))


@bug("core.group.observer:Observer._deadlines", test=protocols.test_an_eager_revocation_has_a_deadline)
def an_eager_revocation_without_a_deadline(original, observer, state):
    """Who does not give up its partitions holds up the group."""
    return [e for e in original(observer, state) if state.partitions[e.partition_id].to_flow is not None]


@bug(f"{STEPS}.rebalancing:revoke_all", test=protocols.test_an_eager_member_joins_while_partitions_move)
def an_eager_revocation_spares_what_is_handed_off_already(original, decision):
    """A handoff under way keeps its receiver when an eager member joins."""
    for partition_id, own in sorted(decision.state.partitions.items()):
        if own.state is PartitionState.OWNED:
            decision.emit_partition(Kind.HANDOFF_STARTED, partition_id, decision.state.trigger, flow=own.flow)


@bug(f"{STEPS}.ownership:end", moves, eager)
def the_lineage_goes_on_after_a_forced_revocation(original, decision, kind, partition_id, cause, **options):
    """What a process had not acknowledged by the deadline counts as its own if it gets the partition back."""
    emit, lineage_epoch = decision.emit_partition, decision.state.partitions[partition_id].lineage_epoch
    decision.emit_partition = lambda *a, **k: emit(*a, **{**k, "lineage_epoch": lineage_epoch})
    original(decision, kind, partition_id, cause, **options)
    decision.emit_partition = emit


# ---- the choice
@bug("core.group.choice:choose", shared, mixed)
def the_protocol_is_that_of_one_member_alone(original, members):
    """Members follow different protocols during an upgrade."""
    assignor, _ = original(members)
    oldest = min(members, key=lambda m: m.order)
    return assignor, Protocol.COOPERATIVE if oldest.cooperative else Protocol.EAGER


@bug(
    "core.group.choice:choose",
    test=lambda: protocols.test_the_assignor_that_all_support_with_the_most_votes(
        [["cooperative-sticky", "range"], ["cooperative-sticky", "range"], ["range"]], ("range", "eager")
    ),
)
def an_assignor_that_not_all_support(original, members):
    """The most popular assignor is used, though some member does not know it."""
    votes = Counter(found.assignors[0] for found in members)
    return votes.most_common(1)[0][0], original(members)[1]


@bug("core.assignors.api:target", test=protocols.test_each_gets_only_what_it_reads)
def a_grant_to_a_member_that_does_not_read_the_queue(original, rule, members, counts, current, loads):
    """Anybody may get any partition."""
    wanted = [queue for queue in counts if any(queue in m.queues for m in members)]
    return original(rule, [replace(m, queues=wanted) for m in members], counts, current, loads)


@bug("core.group.choice:alike", test=protocols.test_flows_that_differ_have_no_standbys)
def standbys_of_flows_that_differ(original, *views):
    """The number of flows is all that counts, whatever they read."""
    return True


@bug("core.group.choice:alike", test=protocols.test_those_who_are_left_are_alike_but_not_what_the_group_was)
def a_holddown_ends_when_those_who_are_left_are_alike(original, *views):
    """What the group was before does not count."""
    return original(views[-1])


# ---- assignors that fail
@bug("core.group.observer:Observer.due", test=protocols.test_who_leaves_may_leave)
def a_due_assignment_is_forgotten(original, observer, state, acks, now_ms):
    """An assignment that failed once is never computed."""
    return [e for e in original(observer, state, acks, now_ms) if not isinstance(e, AssignmentDue)]


@bug("core.group.observer:Observer.due", test=timers.test_a_due_assignment_hides_nothing)
def a_failing_assignor_keeps_the_dead(original, observer, state, acks, now_ms):
    """The assignment is tried first, and nothing else is decided when it fails."""
    found = original(observer, state, acks, now_ms)
    return [AssignmentDue()] if AssignmentDue() in found else found


@bug("core.group.decide:decide", test=protocols.test_who_leaves_may_leave)
def what_led_to_a_failing_assignment_is_taken_for_assigned(original, state, acks, events, *rest, **options):
    """A group whose assignor fails says that it is Ready."""
    facts = original(state, acks, events, *rest, **options)
    after = state.copy()
    for fact in facts:
        after.replay(fact)
    if after.assignment_due and not after.revoking:
        facts.append(GroupFact(Kind.STATUS_CHANGED, status=Status.READY))
    return facts


# ---- queues that come and go
@bug(f"{STEPS}.joining:resume", test=lambda: orders.test_every_order_of_protocols_and_queues(*orders.OPTIONS[-2]))
def a_restart_keeps_what_it_no_longer_reads(original, decision, flow, cause):
    """Partitions stay with a member that started again without their queue."""
    for partition_id in decision.state.owned(flow):
        own = decision.state.partitions[partition_id]
        ownership.grant(decision, partition_id, own.target or flow, cause, forced=own.target not in (flow, None))


@bug("core.group.state:GroupState._replay", test=protocols.test_a_pattern_finds_queues)
def a_removed_queue_leaves_its_partitions(original, state, kind, fact):
    """Partitions of a queue that was deleted stay assigned."""
    kept = dict(state.partitions)
    original(state, kind, fact)
    if kind is Kind.QUEUE_REMOVED:
        state.partitions = kept


@bug(f"{STEPS}.queue_changes:remove_queue", test=protocols.test_a_pattern_finds_queues)
def a_deleted_queue_is_never_noticed(original, decision, queue_id, cause):
    """The group goes on with a queue that does not exist."""


@bug(f"{STEPS}.queue_changes:queues_changed", test=protocols.test_queues_come_to_a_group_that_has_none)
def queues_that_come_to_a_group_without_any(original, decision, event):
    """The first queue of a group that waits for one is not assigned."""
    if decision.state.queues:
        original(decision, event)
    else:
        queue_changes.add_queues(decision, event.queues, event.starts, "")


@bug(f"{STEPS}.joining:join", test=protocols.test_a_queue_that_nobody_reads_any_more)
def a_queue_that_nobody_reads_is_forgotten(original, decision, event):
    """The positions of a queue go with its last reader."""
    original(decision, event)
    for queue_id in set(decision.state.queues) - {p[0] for p in decision.state.subscribed_partitions}:
        queue_changes.remove_queue(decision, queue_id, "")


@bug(f"{STEPS}.queue_changes:queues_changed", lambda s: bool(s.scalings and s.queries))
def new_partitions_wait_for_the_next_rebalance(original, decision, event):
    """A queue grows, and nobody reads the new partitions."""
    queue_changes.add_queues(decision, event.queues, event.starts, "")
