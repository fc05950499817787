"""Each rule without which the protocol loses messages, delivers twice or hangs, as a story of its own."""

from __future__ import annotations

from spark_partq.core.group import acks as acks_module
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.facts import Kind, PartitionState, Status
from spark_partq.core.group.observer import Observer
from spark_partq.testing.process import Checkpoint, Process
from tests.testing.stage import P0, P1, Stage


def test_the_example_of_a_handoff() -> None:
    """H1, H2, H3: two messages finish with their flow, three go to the new one, the other partition never pauses."""
    stage = Stage(2)
    a = stage.consumer("a")
    stage.produce(2)
    stage.until(a, "plans")
    b = stage.consumer("b")
    assert [(f.partition, f.to_flow) for f in stage.facts(Kind.HANDOFF_STARTED)] == [(1, "b/0")]
    stage.produce(5)
    stage.until(a, "commits Released q0.1")
    stage.until(b, "delivers q0.1")
    stage.until(a, "delivers q0.0[2,5)")
    assert stage.delivered(P1) == [(0, 2, 1), (2, 5, 2)]
    assert stage.delivered(P0) == [(0, 2, 1), (2, 5, 1)]
    assert stage.control.state.status is Status.READY
    stage.converge()


def test_a_handoff_ends_at_its_deadline() -> None:
    """H4: what is not acknowledged in time goes to the new flow, marked; the late acknowledgement changes nothing."""
    stage = Stage(2, max_handoff_time_ms=1_000)
    a = stage.consumer("a")
    stage.produce(4)
    stage.until(a, "delivers q0.1")  # and it goes on with this batch for a long time
    b = stage.consumer("b")
    stage.live(900, a, b)
    assert stage.owner(P1) == "a/0"
    stage.live(400, a, b)
    granted = stage.facts(Kind.GRANTED, P1)[-1]
    assert (granted.flow, granted.offset, granted.delivered, granted.forced) == ("b/0", 0, 4, True)
    stage.until(a, lambda: a.checkpoint.committed)
    stage.produce(6)
    stage.until(a, "plans q0.0[4,6)")
    assert stage.control.state.position(P1, stage.acks.acks) == 0
    stage.until(b, "delivers q0.1[0,6)@2 marked below 4")
    stage.converge()


def test_no_handoff_time_moves_at_once() -> None:
    """H4: with a handoff time of 0 nothing drains."""
    stage = Stage(2, max_handoff_time_ms=0)
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "delivers q0.1")
    stage.consumer("b")
    assert stage.owner(P1) == "b/0"
    assert stage.control.state.status is Status.READY
    stage.converge()


def test_a_new_receiver_gets_no_new_time() -> None:
    """H4: whatever becomes of the receiver, the giver has its time only once."""
    stage, last = Stage(4, max_handoff_time_ms=1_000), ("q0", 3)
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "delivers q0.3")
    b = stage.consumer("b")
    assert stage.control.state.partitions[last].to_flow == "b/0"
    stage.live(600, a, b)
    c, d = stage.consumer("c"), stage.consumer("d")
    assert stage.control.state.partitions[last].to_flow == "d/0"
    stage.live(600, a, b, c, d)
    assert stage.owner(last) == "d/0"
    assert stage.owner(P1) == "a/0"
    stage.converge()


def test_the_receiver_of_a_handoff_goes() -> None:
    """The target is looked at again at every step: the partition stays, or goes to somebody else."""
    stage = Stage(2, max_handoff_time_ms=60_000)
    a = stage.consumer("a")
    stage.produce(2)
    stage.until(a, "delivers q0.1")
    b = stage.consumer("b")
    b.stop("crashes")
    stage.expel(b)
    assert stage.control.state.status is Status.READY
    assert stage.control.state.partition_state(P1) is PartitionState.OWNED
    stage.until(a, lambda: a.checkpoint.committed)
    stage.produce(5)
    stage.until(a, "plans q0.0[2,5)@1 q0.1[2,5)@1")
    stage.converge()


def test_the_giver_of_a_handoff_goes() -> None:
    """R4: what a flow that is gone was about to give is vacant like the rest."""
    stage = Stage(2, max_handoff_time_ms=60_000)
    a, b = stage.consumer("a"), stage.consumer("b")
    a.stop("crashes")
    stage.expel(a)
    assert {stage.owner(P0), stage.owner(P1)} == {"b/0"}
    assert b.alive
    stage.converge()


def test_what_a_replay_leaves_out_is_never_acknowledged() -> None:
    """An acknowledgement is for the ownership in which its batch was planned, not for the one held now."""
    stage = Stage()
    a = stage.consumer("a")
    stage.produce(4)
    stage.until(a, "plans")  # in the offset log, but not run
    a.stop("crashes")
    b = stage.consumer("b")
    stage.expel(a)
    assert stage.owner() == "b/0"
    b.stop("crashes")
    a = stage.consumer("a")
    stage.expel(b)
    assert stage.owner() == "a/0"
    stage.until(a, "delivers")
    assert stage.delivered() == [(0, 4, stage.control.state.partitions[P0].epoch)]
    stage.converge()


def test_a_return_without_the_partition_ends_its_lineage() -> None:
    """The same, with nobody else ever owning it: it is vacant in the holddown while the batch is replayed without it."""
    stage = Stage(4, rebalance_delay_ms=1_000)
    a = stage.consumer("a")
    stage.consumer("b")
    stage.live(1_200)
    stage.live(300, main=True)
    stage.produce(4)
    stage.until(a, "plans")
    a.stop("crashes")
    stage.expel(a)
    rest = stage.rebalancer()
    a = stage.consumer("a", flows=2)  # the number of flows is not what it was: the holddown goes on
    assert stage.control.state.status is Status.HOLDDOWN
    assert stage.control.state.partition_state(P0) is PartitionState.UNASSIGNED
    stage.until(a, "replays nothing")
    stage.live(1_500, rest)
    assert (stage.owner(P0) or "").startswith("a/")
    stage.until(a, "delivers q0.0[0,4)")
    stage.converge()


def test_a_restart_in_time_goes_on_where_it_was() -> None:
    """K6: the same partitions, nothing triggered, and the batch that was planned is replayed, marked."""
    stage = Stage(2)
    a, b = stage.consumer("a"), stage.consumer("b")
    stage.until(a, "commits Released")
    stage.produce(3)
    stage.until(a, "plans q0.0[0,3)@1")
    seen = len(stage.facts())
    a.stop("crashes")
    a = stage.consumer("a")
    assert [f.kind for f in stage.facts()[seen:]] == [Kind.MEMBER_JOINED, Kind.GRANTED]
    assert stage.control.state.status is Status.READY
    stage.until(a, "delivers q0.0[0,3)@2 marked below 3")
    stage.converge()
    assert stage.delivered(P0) == [(0, 3, 2)]
    assert b.alive


def test_a_batch_in_the_commit_log_is_not_replayed() -> None:
    """After a restart the next batch starts after the last one that finished, and that one is acknowledged."""
    stage = Stage()
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, lambda: a.checkpoint.batch == 1 and a.checkpoint.committed)
    a.stop("crashes")
    a = stage.consumer("a")
    stage.produce(5)
    stage.until(a, "acks q0.0 epoch 2 offset 3 delivered 5")
    stage.converge()
    assert stage.delivered() == [(0, 3, 1), (3, 5, 2)]


def test_a_replay_delivers_also_what_is_draining() -> None:
    """What drains is still in its lineage: left out, it would be acknowledged without having been delivered."""
    stage = Stage(2)
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "plans q0.0[0,3)@1 q0.1[0,3)@1")
    a.stop("crashes")
    a = stage.start("a", 1, False, a.durable)
    stage.until(a, "commits MemberJoined")
    stage.consumer("b")
    assert stage.control.state.partition_state(P1) is PartitionState.DRAINING
    stage.until(a, "replays q0.0[0,3)@2 q0.1[0,3)@2")
    stage.until(a, "commits Released q0.1 offset=3")
    stage.converge()
    assert stage.delivered(P1) == [(0, 3, 2)]


def test_an_expired_process_that_lives_comes_back() -> None:
    """Expiry of the last member ends its epoch; it joins again, and what it was doing meanwhile still is in its lineage."""
    expiry_between_plan_and_run(Process)


def expiry_between_plan_and_run(process: type[Process]) -> None:
    stage = Stage(1, process)
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "plans")
    first = a.incarnation
    stage.expel(a)
    assert stage.control.state.partition_state(P0) is PartitionState.UNASSIGNED
    stage.until(a, "delivers q0.0[0,3)@1")
    stage.until(a, "acks q0.0 epoch 3 offset 3")
    assert a.incarnation != first
    stage.converge()
    assert stage.delivered() == [(0, 3, 1)]


def test_a_second_process_of_an_instance_fences_the_first() -> None:
    """W2: the older one stops at its next look, and what it acknowledges until then does not count."""
    stage = Stage()
    old = stage.consumer("a")
    stage.produce(3)
    stage.until(old, "plans")
    new = stage.consumer("a", checkpoint=Checkpoint())
    stage.until(old, lambda: old.checkpoint.committed)
    stage.until(old, lambda: not old.alive)
    assert old.stopped == "is fenced"
    assert stage.control.state.position(P0, stage.acks.acks) == 0
    stage.until(new, "delivers q0.0[0,3)@2 marked below 3")
    stage.converge()


def test_two_processes_of_an_instance_start_at_once() -> None:
    """The one that loses its place before its replay does not replay, for it would leave out everything."""
    stage = Stage()
    a = stage.consumer("a")
    stage.produce(4)
    stage.until(a, "plans")
    a.stop("crashes")
    one = stage.start("a", 1, False, a.durable)
    stage.until(one, "commits MemberJoined")
    two = stage.consumer("a", checkpoint=Checkpoint())
    stage.until(one, lambda: not one.alive)
    assert not a.durable.committed
    two.stop("crashes")
    one = stage.start("a", 1, False, a.durable)
    stage.until(one, "replays q0.0[0,4)@4")
    stage.converge()


def test_a_release_waits_for_what_was_planned_before_it() -> None:
    """Plan and release are one thread's work: a batch that is planned is waited for, though nothing of it has run."""
    stage = Stage(2)
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "plans")
    stage.consumer("b")
    stage.live(1_000, a)
    assert stage.control.state.partition_state(P1) is PartitionState.DRAINING
    stage.until(a, "commits Released q0.1 offset=3")
    stage.converge()
    assert stage.delivered(P1) == [(0, 3, 1)]


def test_an_acknowledgement_under_a_past_epoch_is_repeated() -> None:
    """It was sent on a look that had grown old; the partition got nothing new since, yet the position moves."""
    stage = Stage(2)
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, lambda: a.checkpoint.committed and a.checkpoint.batch == 1)
    stage.produce(5, P1)
    looked_at = a.looked_at
    stage.until(a, lambda: a.looked_at > looked_at)
    stage.expel(a)
    stage.until(a, "plans q0.1[3,5)@1")
    stage.until(a, "commits Granted q0.0 offset=0")
    stage.converge()
    assert stage.delivered(P0) == [(0, 3, 1)]


def test_manual_acknowledgement_after_a_restart() -> None:
    """H5: what the application has not acknowledged is delivered again, also if it lies before the last batch."""
    restart_with_manual_acknowledgement(Process)


def restart_with_manual_acknowledgement(process: type[Process]) -> None:
    stage = Stage(1, process)
    a = stage.consumer("a", manual=True)
    stage.produce(2)
    stage.until(a, lambda: a.checkpoint.batch == 1 and a.checkpoint.committed)
    stage.produce(4)
    stage.until(a, "plans q0.0[2,4)@1")
    a.stop("crashes")
    a = stage.consumer("a", manual=True)
    stage.until(a, "delivers q0.0[0,4)@2 marked below 4")
    stage.until(a, lambda: a.checkpoint.committed)
    a.stop("crashes")
    a = stage.consumer("a", manual=True)
    stage.until(a, "delivers q0.0[0,4)@3 marked below 4")
    stage.converge()


def test_a_cancelled_handoff_delivers_nothing_again() -> None:
    """H5: what was delivered and waits for the application's word waits on, though its partition drained meanwhile."""
    cancelled_handoff(Process)


def cancelled_handoff(process: type[Process]) -> None:
    stage = Stage(2, process, max_handoff_time_ms=60_000)
    a = stage.consumer("a", manual=True)
    a.forgets = True
    stage.produce(3)
    stage.until(a, lambda: a.checkpoint.batch == 1 and a.checkpoint.committed)
    b = stage.consumer("b")
    stage.produce(4)
    stage.until(a, "plans q0.0[3,4)@1")
    stage.expel(b)
    b.stop("crashes")
    stage.produce(5)
    stage.until(a, "plans q0.0[4,5)@1 q0.1[3,5)@1")
    stage.converge()


def test_manual_acknowledgement_holds_a_handoff() -> None:
    """H5: a partition is not released before the application says so."""
    stage = Stage(2, max_handoff_time_ms=60_000)
    a = stage.consumer("a", manual=True)
    stage.produce(2)
    stage.until(a, lambda: a.checkpoint.batch == 1 and a.checkpoint.committed)
    b = stage.consumer("b")
    for _ in range(10):
        stage.live(500, a, b)
        stage.steps(a, thread="main")
    assert stage.control.state.partition_state(P1) is PartitionState.DRAINING
    stage.steps(a, 20, thread="application")
    stage.live(500, a, b)
    assert stage.owner(P1) == "b/0"
    stage.converge()


def test_a_standby_takes_over() -> None:
    """R3: exactly the load of the flow that goes, at once, whatever the delay."""
    stage = Stage(2, rebalance_delay_ms=60_000)
    a = stage.consumer("a", flows=2)
    seen = len(stage.facts())
    b = stage.consumer("b")
    assert [f.kind for f in stage.facts()[seen:]] == [Kind.MEMBER_JOINED]
    stage.produce(3)
    stage.live(500, b, main=True)
    assert not stage.delivered()
    a.stop("crashes")
    stage.expel(a)
    assert stage.owner(P0) == "b/0"
    assert stage.control.state.status is Status.HOLDDOWN  # for the second flow that went


def test_a_rejoin_remembers_what_was_handed_out() -> None:
    """A process that was expelled and is back in its lineage waits for its running batch before it releases."""
    rejoin_while_a_batch_runs(Process)


def rejoin_while_a_batch_runs(process: type[Process]) -> None:
    stage = Stage(2, process)
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "plans")
    stage.expel(a)
    stage.until(a, "commits MemberJoined", thread="background")
    stage.consumer("b")
    stage.steps(a)
    assert stage.control.state.partition_state(P1) is PartitionState.DRAINING
    stage.until(a, "commits Released q0.1 offset=3")
    stage.converge()


def test_a_flow_that_comes_back_in_time_takes_exactly_what_it_had() -> None:
    """R5: no handoff at all."""
    stage = Stage(4, rebalance_delay_ms=1_000)
    stage.consumer("a")
    b = stage.consumer("b")
    stage.live(1_200)
    stage.live(500, main=True)
    assert stage.control.state.status is Status.READY
    had = stage.control.state.owned("b/0")
    assert len(had) == 2
    seen = len(stage.facts())
    b.stop("crashes")
    stage.expel(b)
    assert stage.control.state.status is Status.HOLDDOWN
    stage.live(500)
    assert [stage.control.state.partition_state(where) for where in had] == [PartitionState.UNASSIGNED] * 2
    stage.consumer("b")
    assert stage.control.state.status is Status.READY
    assert stage.control.state.owned("b/0") == had
    assert not [f for f in stage.facts()[seen:] if f.kind == Kind.HANDOFF_STARTED]
    stage.converge()


def test_the_delay_runs_from_the_first_change() -> None:
    """R5: later changes do not restart it."""
    stage = Stage(4, rebalance_delay_ms=1_000)
    stage.consumer("a")
    stage.consumer("b")
    stage.live(600)
    stage.consumer("c")
    assert stage.control.state.status is Status.HOLDDOWN
    stage.live(600)
    assert stage.control.state.status is not Status.HOLDDOWN
    stage.converge()


def test_a_worker_comes_and_goes() -> None:
    """W3: 8 partitions; the second takes half, the first never stops on its half, leaves, and the second takes the rest."""
    stage = Stage(8)
    a = stage.consumer("a")
    b = stage.consumer("b")
    stage.live(500, main=True)
    half = stage.control.state.owned("a/0")
    assert len(half) == len(stage.control.state.owned("b/0")) == 4
    assert {f.epoch for where in half for f in stage.facts(Kind.GRANTED, where)} == {1}
    stage.produce(5)
    stage.until(a, "plans")
    a.leaving = True
    stage.until(a, lambda: not a.alive)
    assert a.stopped == "has left"
    assert len(stage.control.state.owned("b/0")) == 8
    assert [stage.delivered(where) for where in half] == [[(0, 5, 1)]] * 4
    assert b.alive
    stage.converge()


def test_a_clock_that_jumps_expels_nobody() -> None:
    """An observer believes its own clock only in small steps, so neither a jump nor a pause of its own makes others silent."""
    stage = Stage(2)
    a, b = stage.consumer("a"), stage.consumer("b")
    stage.live(500)
    b.clock_ms += 3_600_000
    stage.steps(b)
    assert set(stage.control.state.members) == {"a", "b"}
    b.clock_ms -= 7_200_000
    stage.steps(b)
    stage.live(20_000)
    assert set(stage.control.state.members) == {"a", "b"}
    assert a.alive and b.alive


def test_a_silent_process_is_expelled() -> None:
    """R4: after its session timeout, by whoever watches."""
    stage = Stage(2, session_timeout_ms=3_000)
    a, b = stage.consumer("a"), stage.consumer("b")
    stage.live(1_000)
    a.stop("crashes")
    stage.live(2_500)
    assert set(stage.control.state.members) == {"a", "b"}
    stage.live(1_500)
    assert set(stage.control.state.members) == {"b"}
    assert b.alive
    stage.converge()


def test_nobody_expels_himself() -> None:
    """A process that is too busy to beat is for the others to judge."""
    stage = Stage(1, session_timeout_ms=1_000)
    a = stage.consumer("a")
    stage.live(200)
    for now_ms in range(0, 10_000, 100):
        assert not a.observer.due(stage.control.state, stage.acks.acks, a.clock_ms + now_ms)


def test_a_floor_holds_whatever_happens() -> None:
    """Q8: nothing is ever delivered again below a floor, so what lies there may be removed."""
    stage = Stage()
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "plans")
    copy = a.durable.copy()
    stage.live(500, a, main=True)
    stage.floor(a)
    assert stage.recorder.kept == {P0: 3}
    a.stop("crashes")
    old = stage.consumer("a", checkpoint=copy)  # an old copy of the checkpoint
    stage.until(old, "replays nothing")
    stage.converge()


def test_compaction_keeps_what_can_still_count() -> None:
    """Of each partition the rows of the highest epoch, of each member its heartbeat, of all what was handed out."""
    rows = [
        AckRow("old", 9, "q", 0, 1, 50, 60),
        AckRow("new", 3, "q", 0, 2, 7, 8),
        AckRow("twin", 1, "q", 0, 2, 2, 3),
        AckRow("idle", 4),
        AckRow("gone", 5),
        AckRow("old", 10, "q", 0, 1, 55, 60),
    ]
    kept = acks_module.compacted(rows, ["new", "idle"])
    acks = Acks.of(kept)
    assert acks.offset(("q", 0), 2, "new") == 7
    assert acks.offset(("q", 0), 2, "twin") == 2
    assert acks.beats == {"new": 3, "twin": 1, "idle": 4}
    assert acks.delivered(("q", 0)) == 60
    assert len(kept) == 3


def test_the_observer_is_not_disturbed_by_a_compaction() -> None:
    """A heartbeat that goes back or vanishes is a sign of life, not of death."""
    stage = Stage(1, session_timeout_ms=1_000)
    stage.consumer("a")
    watch = Observer()
    state, incarnation = stage.control.state, stage.control.state.members["a"].incarnation
    for i, beat in enumerate((7, 7, 0, 0)):
        assert not watch.due(state, Acks({incarnation: beat}), i * 600)
