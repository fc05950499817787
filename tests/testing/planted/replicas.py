"""Replicas: the order of a pass, and the steps of a promotion."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from spark_partq.core.queue.facts import Kind
from spark_partq.core.replica.facts import Phase
from spark_partq.storage.log import retrying
from spark_partq.storage.procedures.primary import fence
from spark_partq.storage.queue.handle import attach_group, queue_state
from spark_partq.storage.queue.partition_table import SEALED
from spark_partq.storage.replica.history import token_at
from tests.core.replica.test_decide import test_a_replica_that_is_removed_meanwhile_is_not_promoted
from tests.storage.procedures import test_mixed_histories as histories
from tests.storage.procedures import test_promote as promotions
from tests.storage.procedures import test_promoted_dead_letters as dead
from tests.storage.procedures import test_replica_of_deletions as deletions
from tests.storage.procedures import test_replicate as passes
from tests.storage.procedures import test_replicate_crashes as crashes
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import (
    ATTACHED_BESIDE_A_PROMOTION,
    BEGUN_BESIDE_A_PROMOTION,
    BOTH_PROMOTED,
    FENCED_LATE,
    LOST_BESIDE_A_RESIZE,
    MOVED,
    MOVED_BESIDE_A_RESIZE,
    PROMOTED,
    PUT_BACK,
    as_is,
    both,
    promoted,
    read,
)
from tests.testing.planted.stores import in_a_store, in_two_stores

REPLICATOR, PROMOTE = "storage.procedures.replicate:Replicator", "storage.procedures.promote"
TABLE = "storage.queue.partition_table:PartitionTable"
LOST = replace(PROMOTED, primary_lost=True)


def in_mixed_histories():
    in_two_stores(lambda queue, there: histories.test_behind_a_clean_up(histories.PutBack(queue, there), 5))


def reachable(s):
    return promoted(s) and not s.primary_lost


def lost(s):
    return promoted(s) and s.primary_lost


# ---- a pass
def with_dead_messages(test, *arguments):
    in_a_store(lambda store: test(store, f"{store}-there", *arguments))


@bug(
    "storage.replica.parts:_followed",
    test=lambda: with_dead_messages(dead.test_a_pass_has_the_dead_messages_that_its_groups_have_put_aside),
)
def a_pass_leaves_dead_messages_to_their_own(original, store, target, queue, replica):
    """The position of a group comes before what it has put aside."""
    return None


@bug(
    "storage.replica.parts:parts",
    test=lambda: with_dead_messages(dead.test_what_is_put_aside_and_back_while_a_pass_reads, "q"),
)
def dead_messages_are_read_first(original, *args):
    """What a group puts aside meanwhile, and what is put back, is not in the copy."""
    found, unknown = original(*args)
    return found[::-1], unknown


@bug(
    "storage.replica.parts:held_back",
    test=lambda: with_dead_messages(dead.test_a_dead_message_queue_that_cannot_be_reached),
)
def groups_go_on_without_their_dead_messages(original, parts, done, unknown):
    """The position of a group comes though its dead-message queue cannot be read."""
    return set()


@bug("storage.replica.table_copy:TableCopy.apply", both(lost, read), as_is(LOST))
def positions_are_copied_before_messages(original, copy, steps):
    """A pass copies the messages after the tables that speak of them."""
    if "/partitions/" not in copy.folder:
        return original(copy, steps)
    put = original(copy, list(steps)[:-1])  # the last of them comes with the next pass
    return put


@bug(
    "storage.replica.table_copy:TableCopy.apply",
    test=lambda: in_two_stores(passes.test_what_a_group_does_during_a_pass_comes_with_the_next),
)
def groups_are_copied_as_they_are_later(original, copy, steps):
    """A pass takes the groups as they are when it ends, with positions past its messages."""
    return original(copy, copy.steps() if copy.folder.startswith("groups/") else steps)


@bug("storage.replica.explained:explained", change=as_is(LOST_BESIDE_A_RESIZE))
def a_seal_is_copied_that_nothing_explains(original, steps, state, sealed=-1):
    """A pass beside a resize copies seals of a change that the copied control table does not know."""
    return iter(steps)


@bug("storage.replica.table_copy:TableCopy._bring", both(promoted, read))
def a_commit_is_copied_before_its_files(original, copy, add):
    """A copy names data files that are not there."""


# ---- a promotion
@bug(f"{REPLICATOR}.sync", reachable)
def the_last_pass_is_left_out(original, replicator):
    """What the primary took since the last pass is not copied."""
    return None if replicator._taking_over else original(replicator)


@bug(f"{PROMOTE}:fence", change=as_is(MOVED))
def the_primary_is_fenced_after_the_last_pass(original, store, queue, location, replica_id):
    """What producers append between the last pass and the fence is lost."""


@the_primary_is_fenced_after_the_last_pass.also(f"{REPLICATOR}.sync")
def _then_fences(original, replicator):
    found = original(replicator)
    if replicator._taking_over:
        fence(
            replicator.store,
            queue_state(replicator.store, replicator.queue),
            replicator.target.uri,
            replicator._replica_ids[replicator.queue],
        )
    return found


@bug(f"{PROMOTE}:fence", reachable)
def the_primary_is_not_fenced(original, store, queue, location, replica_id):
    """Producers go on with the primary."""


@bug("storage.procedures.primary:fence_partitions", change=as_is(MOVED))
def partitions_are_not_fenced(original, store, state):
    """Who looked before the fence still appends to the primary."""


@bug("core.queue.partition_map:may_append", change=as_is(MOVED))
def a_fenced_table_takes_rows(original, sealed, fenced, generation):
    """A producer looks for a seal before it appends, and for no fence."""
    return original(sealed, False, generation)


@bug(f"{TABLE}.seal", change=as_is(MOVED_BESIDE_A_RESIZE))
def a_fenced_table_is_sealed(original, table, generation):
    """Who scales looks for no fence before he seals."""
    cut = f"partq:cut/{generation}"

    def attempt() -> int:
        table.refresh()
        if table.sealed < generation:
            table._log.commit(transactions={SEALED: generation, cut: table.next_offset}, operation="SEAL")
        return table.recorded(cut)

    return retrying(table.store.runtime, attempt, "a seal")


@bug("core.group.steps.promotion:delivered_here", change=as_is(BEGUN_BESIDE_A_PROMOTION))
def a_group_that_had_only_attached_is_told_of_no_deliveries(original, acks, event):
    """It joins the primary after the last pass; what it is given there comes again at the replica, and is not marked."""
    return []


@bug("core.queue.decide:attach_group", change=as_is(ATTACHED_BESIDE_A_PROMOTION))
def a_group_attaches_to_a_fenced_queue(original, state, group, deletions):
    """The replica that takes over does not know of it, nor of what it is given."""
    return original(replace(state, fenced_by=None), group, deletions)


@bug("storage.procedures.consume.subscription:attach", change=as_is(ATTACHED_BESIDE_A_PROMOTION))
def a_group_reads_a_fenced_queue_without_being_attached(original, queue, group):
    """Who cannot attach goes on as if he were."""
    attach_group(queue, group.name, group.state.deletions)


@bug("storage.procedures.primary:unfence_partitions", promoted)
def a_fence_is_not_taken_away(original, store, state, number):
    """The promoted replica takes no messages."""


def not_by_who_finds_it(original, queue, partitions):
    """Nobody takes back a fence that he finds."""
    tables = [queue.table(number) for number in partitions]
    for table in tables:
        table.refresh()
    return tables


for user in "await_map", "partition_map":
    a_fence_is_not_taken_away.also(f"storage.procedures.{user}:unfence")(not_by_who_finds_it)


@bug(f"{PROMOTE}:_close", test=lambda: in_two_stores(promotions.test_a_pass_that_sleeps_through_the_promotion))
def a_pass_goes_on_after_the_promotion(original, store, state, promoting):
    """What a pass has still on its way is put into the promoted replica."""


@bug("core.queue.replicas:become_primary", reachable)
def a_promoted_replica_stays_fenced(original, state, incarnation, ends, before):
    """The promoted replica is taken for a primary that was taken over from."""
    return [fact for fact in original(state, incarnation, ends, before) if fact.kind == Kind.PROMOTED]


@bug("core.queue.replicas:become_primary", promoted)
def a_promoted_replica_keeps_its_incarnation(original, state, incarnation, ends, before):
    """Nobody can tell a checkpoint of before the promotion from one of after it."""
    return [fact for fact in original(state, incarnation, ends, before) if fact.kind != Kind.PROMOTED]


@bug(
    "storage.procedures.consume.subscription:Subscription._check_incarnations",
    lambda s: s.promoted_s is not None and s.old_checkpoints and bool(s.queries),
)
def an_old_checkpoint_is_accepted(original, subscription, group=""):
    """A query goes on at offsets that name other messages now."""


# ---- one primary
def rivals(s):
    return s.other_promoted_s is not None and s.primary_lost


@bug(f"{PROMOTE}:check_alone", rivals, as_is(BOTH_PROMOTED))
def other_replicas_are_not_asked(original, store, table, mine, others, force):
    """Two replicas are promoted one after the other."""


@bug(f"{PROMOTE}:check_alone", rivals, as_is(BOTH_PROMOTED))
def other_replicas_are_asked_only_before_it_begins(original, store, table, mine, others, force):
    """Two replicas that are promoted at once have asked each other before either had begun."""
    if mine.phase is not Phase.PROMOTING:
        original(store, table, mine, others, force)


@bug("core.replica.decide:start_promotion", test=test_a_replica_that_is_removed_meanwhile_is_not_promoted)
def a_replica_that_was_removed_meanwhile_is_promoted(original, state, seen, incarnation, others, force=False):
    """The removal has taken the fence back, and the primary is used, too."""
    if state is not None:
        seen = replace(seen, phase=state.phase, replica_id=state.replica_id)
    return original(state, seen, incarnation, others, True)


@bug(f"{TABLE}.unfence", change=as_is(FENCED_LATE))
def only_fences_that_are_there_are_taken_back(original, table, number):
    """A promotion that slept fences partitions after the replica was removed."""
    table.refresh()
    if table.fenced:
        original(table, number)


for user in "await_map", "partition_map":
    only_fences_that_are_there_are_taken_back.also(f"storage.procedures.{user}:unfence")(not_by_who_finds_it)


# ---- one history
@bug("storage.replica.table_copy:check_has_version", lambda s: s.put_back_s is not None, as_is(PUT_BACK))
def the_last_common_commit_is_not_compared(original, source, target, at, token):
    """A pass goes on from a primary that was put back to an older state and written since."""
    return token_at(source, at) is not None


@the_last_common_commit_is_not_compared.also("storage.replica.table_copy:TableCopy._commit")
def _whatever_was_before(original, copy, version, before):
    return original(copy, version, None)


@bug("storage.replica.table_copy:check_leads_on", test=in_mixed_histories)
def a_jump_goes_anywhere(original, source, target, newer):
    """A replica jumps to a checkpoint that does not know what it holds."""


@bug(
    "storage.replica.history:_agree",
    test=lambda: in_a_store(
        lambda store: deletions.test_other_messages_at_the_same_offsets(store, Path(store).parent, "segment")
    ),
)
def whatever_lies_at_the_offsets_is_the_same(original, mine, theirs):
    """A replica takes a segment of other messages for one that has its own."""
    return True


@bug(
    "storage.procedures.replicate:Replicator._apply",
    test=lambda: in_two_stores(partial(crashes.test_a_pass_dies_that_copies_a_resize, every=7)),
)
def partitions_go_on_before_the_control_table(original, replicator, control, steps, state, partitions):
    """Producers wait for ever at a seal that the promoted replica cannot explain."""
    return sum(copy.apply(new) for copy, new in [*partitions, (control, steps)])


@bug(f"{PROMOTE}:begin_groups_anew", lambda s: s.promoted_s is not None and bool(s.queries))
def what_was_delivered_after_the_last_pass_is_not_marked(original, store, state, firsts, ends, goes_on):
    """A promoted replica takes for delivered only what it knows to be."""
    return original(store, state, firsts, {}, goes_on)


@bug(f"{PROMOTE}:begin_groups_anew", test=lambda: in_two_stores(promotions.test_removals_that_came_before_their_floors))
def positions_lie_below_what_was_removed(original, store, state, firsts, ends, goes_on):
    """A group of the promoted replica wants messages that the primary had removed."""
    return ()
