"""Each rule without which a resize loses messages, writes or delivers them in disorder, or never ends, as a story of its own."""

from __future__ import annotations

from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.testing.process import Checkpoint
from tests.testing.resize_stage import Stage


# ---- producers
def test_a_record_is_of_one_generation() -> None:
    """2 → 3 in the middle of a batch: what is recorded under the old map says nothing of the rows that the new one puts there."""
    town = Stage(2)
    producer = town.produce(town.source("0 1 3"))
    town.until(producer, "appends")  # key 0 to partition 0
    town.open(3)
    town.finish(producer)
    assert town.held() == {0: ["0:0", "3:2"], 1: ["1:1"], 2: []}


def test_a_replay_asks_every_generation() -> None:
    """2 → 3 → 4 while a batch is half written and its producer dead: one row is in since the first map."""
    town = Stage(2)
    source = town.source("0 1")
    producer = town.produce(source)
    town.until(producer, "appends")
    town.open(3)
    producer.stop("crashes")
    town.open(4)
    town.finish(town.produce(source))
    assert town.held() == {0: ["0:0"], 1: ["1:1"], 2: [], 3: []}


def test_records_are_read_at_each_commit() -> None:
    """Two processes of one sink: what the other wrote since the first look is seen."""
    town = Stage(2)
    source = town.source("0 1")
    slow, quick = town.produce(source), town.produce(source)
    for _ in range(4):  # it has looked at both partitions
        slow.step()
    town.finish(quick)
    town.until(slow, "checkpoint in use")
    assert town.held() == {0: ["0:0"], 1: ["1:1"]}


def test_a_process_that_its_sink_has_overtaken_stops() -> None:
    """Of a later batch nobody can tell which rows of this one are in."""
    town = Stage(2)
    source = town.source("0", "0", "0")
    slow = town.produce(source)
    for _ in range(3):
        slow.step()
    town.until(slow, "appends")
    source.done, quick = 1, town.produce(source)
    town.finish(quick)
    source.done = 1
    town.until(town.produce(source), "finds its sink ahead")


def test_a_removed_partition_remembers_its_batches() -> None:
    """2 → 1 with a batch half written: the partition is drained and removed before the batch is written again."""
    town = Stage(2)
    a, source = town.consumer(), town.source("0 1")
    producer = town.produce(source)
    town.backwards = True
    town.until(producer, "appends")  # key 1 to partition 1
    producer.stop("crashes")
    scaler = town.open(1)
    town.live(a)
    town.until(scaler, "PartitionsRemoved")
    town.finish(town.produce(source))
    assert town.held() == {0: ["0:0"], 1: ["1:1"]}
    town.converge()


def test_a_row_without_a_key_has_one_place() -> None:
    """A batch that is replayed in another order puts each row where it was."""
    town = Stage(2)
    source = town.source("2 3 4 5")
    producer = town.produce(source)
    town.until(producer, "appends")
    producer.stop("crashes")
    source.batches[0].reverse()
    town.finish(town.produce(source))
    assert town.held() == {0: ["2:0", "4:2"], 1: ["5:3", "3:1"]}


def test_a_producer_of_a_past_map_writes_nothing() -> None:
    """3 → 2, and the third partition is removed; then somebody wakes up who still wants to write there. Later it comes back."""
    town = Stage(3)
    a = town.consumer()
    late = town.produce(town.source("2", sink="late"))
    for _ in range(5):
        late.step()  # it knows where its row goes
    scaler = town.open(2)
    town.live(a)
    town.finish(scaler)
    town.finish(late)
    assert town.held() == {0: ["2:0"], 1: [], 2: []}
    town.open(3)
    town.write("2", sink="t")
    assert town.held()[2] == ["2:0"]
    assert sorted(town.logs[2].cuts) == [0, 1]
    town.converge()


def test_a_producer_opens_the_next_map_itself() -> None:
    """Whoever scaled is dead: a producer that has met the seal waits a while and goes on."""
    town = Stage(2)
    scaler = town.scale(3)
    town.until(scaler, "seals 1")
    scaler.stop("crashes")
    town.write("0 1 2")
    assert town.queue.state.partition_count == 3
    assert town.held() == {0: ["0:0"], 1: ["1:1"], 2: ["2:2"]}


# ---- the barrier
def test_the_barrier_asks_every_earlier_generation() -> None:
    """1 → 2 → 4: nothing was written under the second map, and the first is not settled."""
    town = Stage(1)
    town.write("1")
    town.open(2)
    town.open(4)
    town.write("1", sink="t")
    assert town.held() == {0: ["1:0"], 1: ["1:0"], 2: [], 3: []}
    a = town.consumer()
    town.live(a, floors=False)
    assert (town.group.position(0), town.group.position(1)) == (1, 0)
    town.live(a)
    assert (town.group.position(0), town.group.position(1)) == (1, 1)
    town.converge()


def test_a_look_at_the_logs_comes_before_that_at_the_queue() -> None:
    """2 → 3 between the two looks of a consumer: what is above the cut is not seen, or known to be."""
    town = Stage(2)
    a = town.consumer()
    source = town.source("4", "4")
    producer = town.produce(source)
    town.until(producer, "appends")

    def resize() -> None:
        town.open(3)
        town.finish(producer)

    for _ in range(100):
        town.turn(a, "main")
        if a.lock == "main":
            break
    a.meanwhile = resize
    town.live(a, floors=False)
    assert town.held() == {0: ["4:0"], 1: ["4:1"], 2: []}
    assert town.got() == ["4:0"]
    town.live(a)
    assert town.got() == ["4:0", "4:1"]
    town.converge()


def test_the_barrier_rests_on_floors() -> None:
    """2 → 3: an acknowledgement may yet be taken back by somebody who has not seen it; only when it is a floor others go on."""
    town = Stage(2)
    town.write("2 2")
    town.open(3)
    town.write("2", sink="t")
    assert town.held() == {0: ["2:0", "2:1"], 1: [], 2: ["2:0"]}
    a = town.consumer()
    town.live(a, floors=False)
    assert (town.group.position(0), town.group.settled(0)) == (2, 0)
    assert town.got() == ["2:0", "2:1"]
    town.live(a)
    assert town.group.settled(0) == 2
    assert town.got() == ["2:0", "2:1", "2:0"]
    town.converge()


def test_only_where_its_key_could_have_been() -> None:
    """4 → 6: an even partition waits for even ones, and not for what else is left."""
    town = Stage(4)
    town.write("1")
    town.open(6)
    town.write("4 5", sink="t")
    a = town.consumer()
    town.live(a, floors=False)
    assert town.got() == ["1:0", "4:0"]
    town.live(a)
    assert town.got() == ["1:0", "4:0", "5:1"]
    town.converge()


def test_what_goes_is_drained_first() -> None:
    """2 → 1: the second partition stays assigned until all of it is settled; meanwhile newer messages wait."""
    town = Stage(2)
    a = town.consumer()
    town.write("0 1")
    scaler = town.open(1)
    town.write("1", sink="t")
    assert town.queue.state.status == "ScalingDown"
    town.live(a, floors=False)
    assert sorted(town.got()) == ["0:0", "1:1"]
    town.live(a)
    town.until(scaler, "PartitionsRemoved")
    town.live(a)
    assert town.got()[2:] == ["1:0"]
    assert sorted(town.group.control.state.partitions) == [("q0", 0)]
    town.converge()


# ---- modes
def test_a_parent_is_stuck_and_nobody_waits_for_it() -> None:
    """0 → 2 → 0: what was in the parent is left there, and given when the queue is exclusive again."""
    town = Stage(0)
    a = town.consumer()
    town.write("1", "1")
    town.open(2)
    town.write("1", sink="t")
    assert town.queue.state.stuck
    town.live(a)
    assert town.got() == ["1:0"]
    assert town.held() == {PARENT: ["1:0", "1:1"], 0: [], 1: ["1:0"]}
    scaler = town.open(0)
    town.live(a)
    town.finish(scaler)
    town.live(a)
    assert town.got() == ["1:0", "1:0", "1:1"]
    assert town.group.control.state.queues["q0"].exclusive
    town.converge()


def test_delete_says_what_it_loses() -> None:
    """3 → 1: two groups, one of which has read more; what one of them has not acknowledged is lost, and holds nobody back."""
    town = Stage(3, groups=2)
    a = town.consumer("a", town.groups[0])
    b = town.consumer("b", town.groups[1])
    town.write("1 2", "1")
    town.live(a)
    town.live(b, turns=8)
    town.open(1, "delete")
    removed = [fact for fact in town.queue.facts if fact.kind == "PartitionsRemoved"]
    assert [fact.body for fact in removed] == [{"ends": {1: 2, 2: 1}, "lost": 3}]
    town.write("1", sink="t")
    town.live(a, b)
    assert town.got(town.groups[0])[-1] == town.got(town.groups[1])[-1] == "1:0"
    town.converge()


def test_what_is_lost_does_not_come_back_with_its_partition() -> None:
    """2 → 1 → 2 before anybody of the group has looked: it must hear of the first change before the second counts."""
    town = Stage(2)
    a = town.consumer()
    town.write("1 1")
    town.finish(town.open(1, "delete"))
    town.write("1", sink="t")
    town.open(2)
    town.write("1", sink="u")
    assert town.held() == {0: ["1:0"], 1: ["1:0", "1:1", "1:0"]}
    town.live(a)
    assert town.got() == ["1:0", "1:0"]
    assert town.group.position(1) == 3
    town.converge()


def test_a_drain() -> None:
    """S4: ingress ends, what is there is read, the count changes, the group is Ready again, and ingress begins."""
    town = Stage(2)
    a = town.consumer()
    town.write("0 1")
    scaler = town.scale(3, "drain")
    town.until(scaler, "ScalingStarted")
    waits = town.produce(town.source("2", sink="t"))
    for _ in range(20):
        waits.step()
        scaler.step()
    assert town.queue.state.scaling is not None and not town.queue.state.scaling.drained
    assert len(town.placed) == 2
    town.live(a)
    town.until(scaler, "QueueDrained")
    town.until(scaler, "GenerationOpened")
    for _ in range(20):
        waits.step()
        scaler.step()
    assert not town.queue.state.ingress and len(town.placed) == 2
    town.live(a)
    town.finish(scaler)
    town.finish(waits)
    assert town.held()[2] == ["2:0"]
    town.converge()


def test_a_drain_is_taken_back() -> None:
    """S4: before it has drained, whoever scales back ends it."""
    town = Stage(2)
    town.consumer()
    town.write("0 1")
    scaler = town.scale(3, "drain")
    town.until(scaler, "ScalingStarted")
    town.finish(town.scale(2))
    town.finish(scaler)
    assert (town.queue.state.scaling, town.queue.state.ingress, town.queue.state.partition_count) == (None, True, 2)


def test_nothing_is_removed_that_nobody_has_read() -> None:
    """2 → 1 with no group: the partition stays for the first that comes."""
    town = Stage(2, groups=1)
    town.write("0 1")
    scaler = town.open(1)
    for _ in range(50):
        scaler.step()
    assert town.queue.state.removing == [1]
    a = town.consumer()
    town.live(a)
    town.until(scaler, "PartitionsRemoved")
    assert sorted(town.got()) == ["0:0", "1:1"]


def test_a_partition_comes_back_with_what_it_had() -> None:
    """2 → 1 → 2: its offsets go on, and so does the group."""
    town = Stage(2)
    a = town.consumer()
    town.write("1", "1")
    scaler = town.open(1)
    town.live(a)
    town.finish(scaler)
    town.live(a)
    scaler = town.open(2)
    town.write("1", sink="t")
    town.live(a)
    assert town.got() == ["1:0", "1:1", "1:0"]
    assert town.group.position(1) == 3
    town.converge()


def test_ingress_is_off() -> None:
    """S3: nothing is written, and what is there is read."""
    town = Stage(2)
    a = town.consumer()
    town.write("0")
    town.queue.commit(town.queue.state, [QueueFact("IngressDisabled", {})])
    waits = town.produce(town.source("1", sink="t"))
    for _ in range(20):
        waits.step()
    town.live(a)
    assert town.got() == ["0:0"] and len(town.placed) == 1
    town.queue.commit(town.queue.state, [QueueFact("IngressEnabled", {})])
    town.finish(waits)
    assert town.held() == {0: ["0:0"], 1: ["1:0"]}
    assert a.checkpoint != Checkpoint()
