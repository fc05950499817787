"""The eager protocol, upgrades, and queues that come and go, each as a story of its own."""

from __future__ import annotations

from spark_partq.core.group.facts import Kind, PartitionState, Protocol, Status
from spark_partq.testing.process import Process
from tests.testing.stage import P0, P1, Stage

EAGER = ("range",)
COOPERATIVE = ("cooperative-sticky",)
BOTH = (*COOPERATIVE, *EAGER)


def eager_stage(partitions: int = 4, assignors: tuple[str, ...] = EAGER, **setup: int) -> Stage:
    """Every member lists the same."""
    stage = Stage(partitions, assignors=(assignors,) * 8, **setup)
    stage.assignors = dict.fromkeys("abcdefgh", assignors)
    return stage


def test_an_eager_rebalance() -> None:
    """K4: everything stops and is finished first, then everything is assigned; nothing comes twice."""
    stage = eager_stage(2)
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "delivers q0.0[0,3)")
    b = stage.consumer("b")
    stage.produce(5)
    stage.live(300, a, b)
    assert stage.control.state.revoking and stage.control.state.partition_state(P0) is PartitionState.DRAINING
    stage.until(a, lambda: a.checkpoint.committed)
    stage.until(a, "commits AssignmentComputed")
    assert stage.control.state.status is Status.READY
    assert (stage.owner(P0), stage.owner(P1)) == ("a/0", "b/0")
    stage.until(a, "plans q0.0[3,5)@2")
    stage.until(b, "delivers q0.1[3,5)@2")
    stage.converge()
    assert stage.delivered(P0) == [(0, 3, 1), (3, 5, 2)]
    assert stage.delivered(P1) == [(0, 3, 1), (3, 5, 2)]


def test_an_eager_revocation_ends_at_its_deadline() -> None:
    """K4, H4: the slowest holds up the others so long and no longer; what it had comes again, marked, also to itself."""
    stage = eager_stage(3, max_handoff_time_ms=1_000)
    a, b = stage.consumer("a"), stage.consumer("b")
    stage.live(500, main=True)
    stage.produce(4)
    stage.until(a, "delivers q0.0")  # and it goes on with this batch for a long time
    mine = stage.control.state.owned("a/0")
    c = stage.consumer("c")
    stage.live(800, a, b, c)
    stage.steps(b, 30, thread="main")
    assert stage.control.state.revoking
    stage.live(500, a, b, c)
    assert not stage.control.state.revoking and stage.control.state.status is Status.READY
    for where in mine:
        assert [f.forced for f in stage.facts(Kind.UNASSIGNED, where)] == [True]
    old = {where: d for where in mine for d in stage.delivered(where)}
    stage.until(a, lambda: a.checkpoint.committed)
    stage.live(500, main=True)
    stage.converge()
    assert stage.owner(P0) == "a/0" and old
    assert stage.delivered(P0)[-1] == (0, 4, stage.control.state.partitions[P0].epoch)


def test_a_member_dies_in_an_eager_revocation() -> None:
    """K4, R4: when its session is over its partitions wait for nobody."""
    stage = eager_stage(4, max_handoff_time_ms=600_000, session_timeout_ms=3_000)
    a, b = stage.consumer("a"), stage.consumer("b")
    stage.live(500, main=True)
    stage.produce(2)
    stage.until(b, "plans")
    c = stage.consumer("c")
    b.stop("crashes")
    stage.live(1_000, a, c, main=True)
    assert stage.control.state.revoking
    stage.live(4_000, a, c, main=True)
    assert stage.control.state.status is Status.READY
    assert [f.forced for f in stage.facts(Kind.UNASSIGNED)] == [None, None]
    stage.converge()


def test_a_member_restarts_in_an_eager_revocation() -> None:
    """K4, K6: what it leaves out of its replay is delivered to whoever gets it, itself included."""
    stage = eager_stage(2, max_handoff_time_ms=600_000)
    a = stage.consumer("a")
    b = stage.consumer("b")
    stage.until(a, "commits AssignmentComputed")
    stage.produce(3)
    stage.until(a, "plans q0.0[0,3)")
    stage.until(b, "plans q0.1[0,3)")
    stage.consumer("c")
    a.stop("crashes")
    a = stage.consumer("a")
    stage.until(a, "replays nothing")
    stage.live(1_000, main=True)
    assert stage.control.state.status is Status.READY
    stage.converge()
    assert [(d.start, d.end) for d in stage.recorder.deliveries[P0]] == [(0, 3)]


def test_an_upgrade_of_a_running_group() -> None:
    """K7: two rolling restarts while messages come: one assignor at a time, and nothing is delivered twice."""
    stage = eager_stage(4)
    for name in "ab":
        stage.consumer(name)
        stage.live(300, main=True)
    used = []
    for end, listed in ((3, BOTH), (6, COOPERATIVE)):
        for name in "ab":
            stage.produce(end)
            stage.live(500, main=True)
            stage.assignors[name] = listed
            old = next(p for p in stage.living if p.instance == name)
            old.stop("crashes")
            stage.consumer(name)
            stage.live(500, main=True)
            used.append((stage.control.state.assignor, stage.control.state.protocol))
    assert used == [
        ("range", Protocol.EAGER),
        ("cooperative-sticky", Protocol.EAGER),
        ("cooperative-sticky", Protocol.EAGER),
        ("cooperative-sticky", Protocol.COOPERATIVE),
    ]
    stage.produce(9)
    stage.converge()
    for p in range(4):
        spans = [(start, end) for start, end, _ in stage.delivered(("q0", p))]
        assert [start for start, _ in spans] == [0, *(end for _, end in spans)][:-1]


def test_the_eager_member_goes_in_the_middle() -> None:
    """K5, K7: what was being given up and shall stay is consumed on."""
    stage = eager_stage(2, COOPERATIVE, max_handoff_time_ms=600_000)
    stage.assignors["b"] = BOTH
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "delivers q0.0")
    b = stage.consumer("b")
    assert stage.control.state.revoking
    b.stop("crashes")
    stage.expel(b)
    assert stage.control.state.status is Status.READY
    assert {f.epoch for f in stage.facts(Kind.GRANTED)} == {1}
    stage.produce(5)
    stage.until(a, lambda: a.checkpoint.committed)
    stage.until(a, "plans q0.0[3,5)@1 q0.1[3,5)@1")
    stage.converge()


# ---- queues
def test_a_queue_is_created() -> None:
    """K3: at once, also in a holddown, and without a stop of what was there."""
    stage = Stage(2, rebalance_delay_ms=60_000)
    a = stage.consumer("a")
    stage.consumer("b")
    assert stage.control.state.status is Status.HOLDDOWN
    stage.new_queue("queue-more")
    (new,) = set(stage.counts) - {"q0"}
    stage.live(3_000, main=True)
    assert stage.control.state.status is Status.READY
    assert all(stage.owner(where) for where in stage.starts() if where[0] == new)
    stage.produce(2)
    stage.converge()
    assert a.alive


def test_queues_come_to_a_group_that_waits_for_them() -> None:
    """K3: members of a pattern that nothing has matched so far."""
    stage = Stage(1)
    stage.counts.clear()
    a = stage.consumer("a")
    stage.live(1_000, main=True)
    assert stage.control.state.status is Status.READY and not stage.control.state.queues
    stage.new_queue("queue-first")
    stage.live(3_000, main=True)
    assert {own.flow for own in stage.control.state.partitions.values()} == {"a/0"}
    stage.counts.clear()
    stage.live(3_000, main=True)
    assert not stage.control.state.partitions
    stage.new_queue("queue-second")
    stage.queues()
    stage.produce(3, *stage.starts())
    stage.live(3_000, main=True)
    stage.converge()
    assert a.alive


def test_a_queue_is_deleted_while_it_drains() -> None:
    """K3: nobody waits for what is gone; its process finishes its batch and acknowledges the rest of it."""
    stage = eager_stage(1, max_handoff_time_ms=600_000)
    stage.new_queue("queue-gone")
    (gone,) = set(stage.counts) - {"q0"}
    stage.queues()
    a = stage.consumer("a")
    stage.produce(3)
    stage.until(a, "delivers q0.0")
    b = stage.consumer("b")
    assert stage.control.state.revoking
    del stage.counts[gone]
    stage.live(3_000, a, b)
    assert set(stage.control.state.queues) == {"q0"}
    assert stage.control.state.partition_state(P0) is PartitionState.DRAINING
    stage.until(a, "commits Released q0.0 offset=3")
    assert stage.control.state.status is Status.READY
    stage.converge()
    assert stage.delivered(P0) == [(0, 3, 1)]


def test_a_queue_that_nobody_reads_any_more() -> None:
    """K3: the group keeps its position, and who reads it again goes on there."""
    stage = Stage(1, reads=((0, 1),) * 8)
    stage.counts["q1"] = ("queue-1", 1)
    stage.queues()
    there = ("q1", 0)
    a = stage.consumer("a")
    stage.produce(4)
    stage.live(1_000, main=True)
    a.stop("crashes")
    stage.reads["a"] = (0,)
    a = stage.consumer("a")
    assert (
        stage.control.state.partition_state(there) is PartitionState.UNASSIGNED
        and stage.control.state.status is Status.READY
    )
    stage.produce(6)
    stage.live(1_000, main=True)
    assert stage.delivered(there) == [(0, 4, 1)]
    a.stop("crashes")
    stage.reads["a"] = (0, 1)
    stage.consumer("a")
    stage.converge()
    assert [(start, end) for start, end, _ in stage.delivered(there)] == [(0, 4), (4, 6)]


def test_members_with_unequal_subscriptions() -> None:
    """K1: each partition goes to one that reads its queue, and stays unassigned in the holddown of its only reader."""
    stage = Stage(2, reads=((0,), (1,), (0, 1)), rebalance_delay_ms=1_000)
    stage.counts["q1"] = ("queue-1", 2)
    stage.queues()
    a, b = stage.consumer("a"), stage.consumer("b")
    stage.live(1_500, main=True)
    assert {stage.owner(("q1", p)) for p in range(2)} == {"b/0"}
    assert {stage.owner(("q0", p)) for p in range(2)} == {"a/0"}
    b.stop("crashes")
    stage.expel(b)
    c = stage.consumer("c")
    stage.produce(3)
    stage.live(500, main=True)
    assert {stage.owner(("q1", p)) for p in range(2)} == {None}
    stage.live(2_000, main=True)
    assert {stage.owner(("q1", p)) for p in range(2)} == {"c/0"}
    stage.converge()
    assert a.alive and c.alive


# ---- assignors that fail
def test_a_failing_assignor_holds_up_nobody() -> None:
    """K1, R4: handoffs end, the dead are noticed, and the assignment is computed as soon as it can be."""
    stage = eager_stage(4, session_timeout_ms=3_000)
    a, b, c = (stage.consumer(name) for name in "abc")
    stage.live(1_000, main=True)
    stage.fails = True
    a.stop("crashes")
    stage.live(5_000, main=True)
    assert set(stage.control.state.members) == {"b", "c"}
    assert stage.control.state.assignment_due and not stage.control.state.revoking
    b.stop("crashes")
    stage.live(5_000, main=True)
    assert set(stage.control.state.members) == {"c"}
    stage.fails = False
    stage.live(500, main=True)
    assert stage.control.state.status is Status.READY
    assert {own.flow for own in stage.control.state.partitions.values()} == {"c/0"}
    stage.converge()
    assert c.alive


def test_manual_acknowledgement_in_an_eager_rebalance() -> None:
    """H5, K4: it holds the whole group until the application has acknowledged, or until the deadline; then it comes again."""
    stage = eager_stage(2, max_handoff_time_ms=1_000)
    a = stage.consumer("a", manual=True)
    stage.produce(2)
    stage.until(a, lambda: a.checkpoint.batch == 1 and a.checkpoint.committed)
    b = stage.consumer("b")
    stage.live(800, a, b)
    assert stage.control.state.revoking
    stage.live(500, a, b)
    assert stage.control.state.status is Status.READY
    stage.converge()
    assert [(start, end) for start, end, _ in stage.delivered(P0)] == [(0, 2), (0, 2)]
    assert isinstance(a, Process)
