"""The state of a queue: what each fact does to it, and where it may stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_partq.core.queue.decide import create
from spark_partq.core.queue.facts import MODES, QueueFact
from spark_partq.core.queue.partition_map import PARENT, partition_numbers
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState, after, replay

SCHEMA: Any = {"type": "struct", "fields": [{"name": "k", "type": "string", "nullable": True, "metadata": {}}]}


class Queue:
    """Facts, one after the other; each state is also what a replay of all of them gives."""

    def __init__(self, partitions: int = 4, ready: bool = True) -> None:
        self.facts = [*create("id", SCHEMA, ["k"], partitions, QueueSettings.parse({}))]
        if ready:
            self.do("PartitionsCreated", partitions=partitions)

    @property
    def state(self) -> QueueState:
        state = replay("orders", self.facts)
        assert state is not None
        return state

    def do(self, kind: str, **body: Any) -> QueueState:
        fact = QueueFact(kind, json.loads(json.dumps(body)))
        after(self.state, fact)
        self.facts.append(fact)
        return self.state

    def cuts(self, partitions: int, at: int = 0) -> dict[int, int]:
        return dict.fromkeys([*partition_numbers(self.state.partition_count), *partition_numbers(partitions)], at)

    def scale(self, partitions: int, mode: str = "live", at: int = 0) -> QueueState:
        """Up to the new map."""
        self.do("ScalingStarted", partitions=partitions, mode=mode)
        if mode == "drain":
            self.do("QueueDrained")
        return self.do("GenerationOpened", partitions=partitions, cuts=self.cuts(partitions, at))

    def remove(self, end: int = 0) -> QueueState:
        return self.do("PartitionsRemoved", ends=dict.fromkeys(self.state.removing, end), lost=0)


def shape(state: QueueState) -> tuple[Any, ...]:
    return (
        state.status,
        state.configured_partitions,
        state.partition_count,
        list(state.partition_numbers),
        state.removing,
    )


def test_a_queue_is_made() -> None:
    """Q1, S8: it is ScalingUp until its tables are there."""
    queue = Queue(ready=False)
    assert queue.state.status == "ScalingUp"
    assert not queue.state.usable and list(queue.state.partition_numbers) == [] and queue.state.removing == []
    ready = queue.do("PartitionsCreated", partitions=4)
    assert shape(ready) == ("Ready", 4, 4, [0, 1, 2, 3], [])
    assert (ready.generation, ready.usable, ready.ingress, ready.revision) == (0, True, True, 2)
    assert ready.key_types == ["string"]


def test_4_6_16_5_3() -> None:
    """S1, S2: the new count is there when all its tables are; the old one until what goes is drained."""
    queue = Queue()
    started = queue.do("ScalingStarted", partitions=6, mode="live")
    assert shape(started) == ("ScalingUp", 6, 4, [0, 1, 2, 3], [])
    assert started.scaling is not None and started.scaling.drained and started.ingress
    opened = queue.do("GenerationOpened", partitions=6, cuts=queue.cuts(6, 7))
    assert shape(opened) == ("Ready", 6, 6, list(range(6)), [])
    assert (opened.scaling, opened.generation) == (None, 1)
    assert opened.generations[0].cuts == dict.fromkeys(range(6), 7)
    assert shape(queue.scale(16, at=7)) == ("Ready", 16, 16, list(range(16)), [])
    assert queue.do("ScalingStarted", partitions=5, mode="live").status == "ScalingDown"
    opened = queue.do("GenerationOpened", partitions=5, cuts=queue.cuts(5, 9))
    assert shape(opened) == ("ScalingDown", 5, 5, list(range(16)), list(range(5, 16)))
    assert shape(queue.remove(9)) == ("Ready", 5, 5, list(range(5)), [])
    assert queue.state.removed_ends == dict.fromkeys(range(5, 16), 9)
    queue.scale(3, at=9)
    assert shape(queue.remove(9)) == ("Ready", 3, 3, [0, 1, 2], [])
    assert queue.state.all_partitions == range(16)
    assert queue.state.generation == 4


def test_what_goes_can_stay_after_all() -> None:
    """S2: the map grows again while partitions are drained; nothing was removed."""
    queue = Queue()
    queue.scale(2)
    assert shape(queue.do("ScalingStarted", partitions=3, mode="live")) == ("ScalingUp", 3, 2, [0, 1, 2, 3], [2, 3])
    opened = queue.do("GenerationOpened", partitions=3, cuts=queue.cuts(3))
    assert shape(opened) == ("ScalingDown", 3, 3, [0, 1, 2, 3], [3])
    assert queue.remove(5).removed_ends == {3: 5}


def test_0_8_0() -> None:
    """S6: the parent leaves at once and is stuck, the partitions are drained; afterwards it is the parent's again."""
    queue = Queue(0)
    assert shape(queue.state) == ("Ready", 0, 0, [PARENT], [])
    assert queue.do("ScalingStarted", partitions=8, mode="live").status == "ScalingUp"
    opened = queue.do("GenerationOpened", partitions=8, cuts=queue.cuts(8, 4))
    assert shape(opened) == ("Ready", 8, 8, list(range(8)), [])
    assert opened.stuck and opened.all_partitions == range(PARENT, 8)
    assert queue.do("StuckCopied", end=3).stuck
    assert not queue.do("StuckCopied", end=4).stuck
    assert queue.do("ScalingStarted", partitions=0, mode="live").status == "ScalingDown"
    opened = queue.do("GenerationOpened", partitions=0, cuts=queue.cuts(0, 6))
    assert shape(opened) == ("ScalingDown", 0, 0, list(range(PARENT, 8)), list(range(8)))
    assert not opened.stuck
    assert shape(queue.remove(6)) == ("Ready", 0, 0, [PARENT], [])
    assert queue.scale(1, at=9).stuck
    assert queue.state.removed_ends[PARENT] == 4


def test_what_is_being_copied_keeps_the_parent_away() -> None:
    """S6: an exclusive queue's consumers would be given again what is in the partitions already."""
    queue = Queue(0)
    queue.scale(8, at=4)
    assert queue.do("StuckCopyStarted", start=1).copying == 1
    with pytest.raises(ValueError, match="is being copied"):
        queue.do("ScalingStarted", partitions=0, mode="live")
    queue.scale(5, at=4)
    assert queue.do("StuckCopied", end=4).copying is None
    queue.do("ScalingStarted", partitions=0, mode="live")
    other = Queue(0)
    other.scale(8, at=4)
    other.do("ScalingStarted", partitions=0, mode="live")
    with pytest.raises(ValueError, match="about to come back"):
        other.do("StuckCopyStarted", start=1)


def test_delete_takes_the_parent_too() -> None:
    """S2: nothing of it is left to be copied."""
    queue = Queue(0)
    queue.scale(2, "delete", at=4)
    assert not queue.do("PartitionsRemoved", ends={PARENT: 4}, lost=4).stuck


def test_delete() -> None:
    """S2: what the map does not name is gone in the same commit."""
    queue = Queue()
    assert queue.scale(1, "delete").removing == [1, 2, 3]
    removed = queue.do("PartitionsRemoved", ends={1: 3, 2: 0, 3: 4}, lost=7)
    assert shape(removed) == ("Ready", 1, 1, [0], [])
    assert removed.removed_ends == {1: 3, 2: 0, 3: 4}


@pytest.mark.parametrize("ingress", [True, False])
def test_drain(ingress: bool) -> None:
    """S4: ingress is off from the start to the end, and then what it was."""
    queue = Queue()
    if not ingress:
        queue.do("IngressDisabled")
    state = queue.do("ScalingStarted", partitions=6, mode="drain")
    assert (state.status, state.ingress) == ("ScalingUp", False)
    with pytest.raises(ValueError, match="GenerationOpened cannot follow"):
        queue.do("GenerationOpened", partitions=6, cuts=queue.cuts(6))
    queue.do("QueueDrained")
    state = queue.do("GenerationOpened", partitions=6, cuts=queue.cuts(6))
    assert (state.status, state.ingress) == ("Ready", False)
    with pytest.raises(ValueError, match="IngressEnabled cannot follow"):
        queue.do("IngressEnabled")
    state = queue.do("ScalingEnded")
    assert (state.scaling, state.ingress) == (None, ingress)


@pytest.mark.parametrize("ingress", [True, False])
def test_a_drain_is_cancelled(ingress: bool) -> None:
    """S4: as if nothing had been."""
    queue = Queue()
    if not ingress:
        queue.do("IngressDisabled")
    before = queue.state
    queue.do("ScalingStarted", partitions=2, mode="drain")
    state = queue.do("ScalingCancelled")
    assert shape(state) == shape(before)
    assert (state.scaling, state.ingress) == (None, ingress)


def test_ingress() -> None:
    """S3: also while the map changes, unless that drains the queue."""
    queue = Queue()
    assert not queue.do("IngressDisabled").ingress
    queue.do("ScalingStarted", partitions=6, mode="live")
    assert queue.do("IngressEnabled").ingress
    assert not queue.do("IngressDisabled").ingress
    assert not queue.do("GenerationOpened", partitions=6, cuts=queue.cuts(6)).ingress


def test_replicas_and_the_end() -> None:
    queue = Queue()
    queue.do("ReplicaAdded", location="a")
    queue.do("ReplicaAdded", location="b")
    assert queue.do("ReplicaRemoved", location="a").replicas == ("b",)
    assert queue.do("QueueFenced", location="b").fenced_by == "b"
    deleted = queue.do("QueueDeleted")
    assert (deleted.status, deleted.usable) == ("Deleting", False)
    assert queue.do("QueueDeleted").deleted  # of two that delete it, neither fails


# ---- what cannot be
@pytest.mark.parametrize(
    ("cut", "why"),
    [
        ({"0": -1}, "-1"),
        ({"0": 4}, "partition 0 is cut at 4, and ended at 5 before"),  # it was cut there
        ({"3": 6}, "partition 3 is cut at 6, and ended at 7 before"),  # it was removed there
    ],
)
def test_a_cut_goes_back(cut: dict[str, int], why: str) -> None:
    """S5: a table that says so is damaged: what was placed by one map would be taken for another's."""
    queue = Queue()
    queue.scale(2, at=5)
    queue.remove(7)
    queue.do("ScalingStarted", partitions=4, mode="live")
    cuts = {str(number): end for number, end in enumerate([5, 5, 7, 7])}
    after(queue.state, QueueFact("GenerationOpened", {"partitions": 4, "cuts": cuts}))
    with pytest.raises(ValueError, match=why):
        queue.do("GenerationOpened", partitions=4, cuts={**cuts, **cut})


def test_what_a_table_may_say() -> None:
    """S5, S7: it is sealed under a map that has ended, or is about to; and fenced while somebody takes over."""
    queue = Queue()
    assert queue.state.explains(-1, False) and not queue.state.explains(0, False)
    queue.do("ScalingStarted", partitions=6, mode="drain")
    assert not queue.state.explains(0, False)
    queue.do("QueueDrained")
    assert queue.state.explains(0, False) and not queue.state.explains(1, False)
    assert not queue.state.explains(0, True)
    queue.do("ReplicaAdded", location="a")
    queue.do("QueueFenced", location="a")
    assert queue.state.explains(0, True) and queue.state.explains(0, False)
    assert not queue.state.explains(1, True)


STATES: dict[str, Callable[[], Queue]] = {
    "new": lambda: Queue(ready=False),
    "ready": Queue,
    "scaling": lambda: with_(Queue(), "ScalingStarted", partitions=6, mode="live"),
    "draining": lambda: with_(Queue(), "ScalingStarted", partitions=6, mode="drain"),
    "drained": lambda: with_(with_(Queue(), "ScalingStarted", partitions=6, mode="drain"), "QueueDrained"),
    "opened": lambda: scaled(Queue(), 6, "drain"),
    "shrunk": lambda: scaled(Queue(), 2, "live"),
    "stuck": lambda: scaled(Queue(0), 4, "live", 1),
    "deleted": lambda: with_(Queue(), "QueueDeleted"),
}
FACTS: dict[str, tuple[dict[str, Any], set[str]]] = {  # a body that fits, and the states where it may stand
    "QueueCreated": (Queue().facts[0].body, set()),
    "PartitionsCreated": ({"partitions": 4}, {"new"}),
    "ScalingStarted": ({"partitions": 9, "mode": "live"}, {"ready", "shrunk", "stuck"}),
    "QueueDrained": ({}, {"draining"}),
    "ScalingCancelled": ({}, {"draining"}),
    "GenerationOpened": ({"partitions": 6, "cuts": {str(p): 0 for p in range(6)}}, {"scaling", "drained"}),
    "PartitionsRemoved": ({"ends": {"2": 0, "3": 0}, "lost": 0}, {"shrunk"}),
    "ScalingEnded": ({}, {"opened"}),
    "IngressDisabled": ({}, {"ready", "scaling", "shrunk", "stuck"}),
    "IngressEnabled": ({}, {"ready", "scaling", "shrunk", "stuck"}),
    "StuckCopyStarted": ({"start": 0}, {"stuck"}),
    "StuckCopied": ({"end": 1}, {"stuck"}),
    "ReplicaAdded": ({"location": "x"}, set(STATES) - {"new", "deleted"}),
    "ReplicaRemoved": ({"location": "x"}, set(STATES) - {"new", "deleted"}),
    "QueueFenced": ({"location": "x"}, set(STATES) - {"new", "deleted"}),
    "Promoted": ({"incarnation": "again", "ends": {"0": 5}}, set(STATES) - {"new", "deleted"}),
    "QueueDeleted": ({}, set(STATES)),
    "Nonsense": ({}, set()),
}


def with_(queue: Queue, kind: str, **body: Any) -> Queue:
    queue.do(kind, **body)
    return queue


def scaled(queue: Queue, partitions: int, mode: str, at: int = 0) -> Queue:
    queue.scale(partitions, mode, at)
    return queue


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("kind", FACTS)
def test_where_a_fact_may_stand(kind: str, name: str) -> None:
    body, allowed = FACTS[kind]
    queue = STATES[name]()
    if name in allowed:
        assert queue.do(kind, **body).revision == len(queue.facts)
    else:
        with pytest.raises(ValueError):
            queue.do(kind, **body)


@pytest.mark.parametrize(
    ("name", "kind", "body", "why"),
    [
        ("new", "PartitionsCreated", {"partitions": 5}, "another count"),
        ("ready", "ScalingStarted", {"partitions": 5, "mode": "gently"}, "no mode 'gently'"),
        ("ready", "ScalingStarted", {"partitions": 4097, "mode": "live"}, "partitions is 4097"),
        ("scaling", "GenerationOpened", {"partitions": 5, "cuts": {str(p): 0 for p in range(5)}}, "is another"),
        ("scaling", "GenerationOpened", {"partitions": 6, "cuts": {str(p): 0 for p in range(4)}}, "both maps"),
        ("scaling", "GenerationOpened", {"partitions": 6, "cuts": {str(p): 0 for p in range(7)}}, "both maps"),
        ("shrunk", "PartitionsRemoved", {"ends": {"3": 0}, "lost": 0}, "no longer names"),
        ("shrunk", "PartitionsRemoved", {"ends": {"1": 0, "2": 0, "3": 0}, "lost": 0}, "no longer names"),
        ("stuck", "StuckCopied", {"end": 2}, "does not hold so many"),
    ],
)
def test_a_body_that_cannot_be(name: str, kind: str, body: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        STATES[name]().do(kind, **body)


def test_nothing_comes_before_the_creation() -> None:
    assert replay("orders", []) is None
    with pytest.raises(ValueError, match="cannot follow nothing"):
        replay("orders", [QueueFact("PartitionsCreated", {"partitions": 4})])


@settings(max_examples=30)
@given(st.data())
def test_any_way_of_scaling(data: st.DataObject) -> None:
    """What consumers share is what the map names and what goes; nothing that was removed comes back by itself."""
    queue = Queue(data.draw(st.integers(0, 6)))
    for _ in range(8):
        partitions, mode = data.draw(st.integers(0, 6)), data.draw(st.sampled_from(MODES))
        end = queue.state.revision
        before = queue.state
        opened = queue.scale(partitions, mode, at=end)
        assert set(opened.removing).isdisjoint(partition_numbers(partitions))
        assert set(opened.partition_numbers) >= {*partition_numbers(partitions), *opened.removing}
        assert set(before.partition_numbers) - set(opened.partition_numbers) <= {PARENT}
        if mode == "delete" or data.draw(st.booleans()):
            removed = queue.remove(end)
            assert removed.partition_numbers == partition_numbers(partitions)
            assert all(removed.removed_ends[p] == end for p in opened.removing)
        if mode == "drain":
            queue.do("ScalingEnded")
        state = queue.state
        assert state.status == ("ScalingDown" if state.removing else "Ready")
        assert set(state.partition_numbers) <= set(state.all_partitions)
        assert state.configured_partitions == state.partition_count == partitions
