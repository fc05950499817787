"""State of a queue, replayed from the facts of its control table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from spark_partq.core.payload.schema import Struct
from spark_partq.core.queue.partition_map import PARENT, Generation, numbers
from spark_partq.core.queue.settings import QueueSettings

Status = Literal["ScalingUp", "ScalingDown", "Ready", "Deleting"]
Mode = Literal["live", "drain", "delete"]
MODES: tuple[Mode, ...] = ("live", "drain", "delete")


@dataclass(frozen=True)
class QueueFact:
    """One row of a queue's control table.

    `kind` is one of

    - ``QueueCreated``  body: queue_id, schema, key, partitions, settings
    - ``PartitionsCreated``  body: partitions; all tables of the first map exist
    - ``ScalingStarted``  body: partitions, mode; with mode ``delete`` also confirmed. Mode ``drain`` ends ingress
    - ``QueueDrained``  body: nothing; of mode ``drain``: everything was acknowledged, and the count may change
    - ``ScalingCancelled``  body: nothing; of mode ``drain``, before it has drained
    - ``GenerationOpened``  body: partitions, cuts; the next map is in force
    - ``PartitionsRemoved``  body: ends, lost; what the map no longer names is drained, or lost
    - ``ScalingEnded``  body: nothing; of mode ``drain``: ingress is what it was before
    - ``IngressDisabled``, ``IngressEnabled``  body: nothing
    - ``StuckCopyStarted``  body: start; of the parent's messages those from here on are being copied into the partitions
    - ``StuckCopied``  body: end; of the parent's messages those below are in the partitions, or nobody wants them any more
    - ``ReplicaAdded``, ``ReplicaRemoved``  body: location
    - ``QueueFenced``  body: location of the replica that took over
    - ``QueueDeleted``  body: nothing; what remains of the queue is being removed
    """

    kind: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Scaling:
    """A change of the partition count that is under way.

    Attributes
    ----------
    drained : bool
        The partitions may be sealed: at once, but for mode ``drain``.
    opened : bool
        The new map is in force, and what is left is to enable ingress again (mode ``drain``).
    ingress : bool
        Whether ingress was enabled before.
    confirmed : int or None
        With mode ``delete``: more messages may not be lost. None is no limit.
    """

    partitions: int
    mode: Mode
    drained: bool
    opened: bool = False
    ingress: bool = True
    confirmed: int | None = None


@dataclass(frozen=True)
class QueueState:
    """What a queue is.

    Attributes
    ----------
    queue_id : str
        UUID; a queue made anew under an old name has another one, so it inherits no positions.
    schema : dict
        Payload columns in Spark's JSON form.
    key : tuple of str
        Columns of the partition key, empty if the queue has none.
    configured_partitions : int
        The wanted partition count (S8); 0 is an exclusive queue.
    first, operating_partitions : int
        The partitions that consumers share have the numbers ``[first, operating_partitions)``; `first` is -1 while the parent is one.
    generations : tuple of Generation
        Every map so far; the last is in force.
    gone : dict
        Of each partition that was removed, the offset at which it ended then. Should it come back, it goes on there.
    copying : int or None
        While what is stuck is being copied: the parent's offset at which that began. It ends before the parent may come back.
    """

    name: str
    queue_id: str
    schema: Struct
    key: tuple[str, ...]
    settings: QueueSettings
    configured_partitions: int
    first: int = 0
    operating_partitions: int = 0
    generations: tuple[Generation, ...] = ()
    gone: dict[int, int] = field(default_factory=dict)
    copying: int | None = None
    scaling: Scaling | None = None
    ingress: bool = True
    replicas: tuple[str, ...] = ()
    fenced_by: str | None = None
    deleted: bool = False
    revision: int = 1  # number of facts replayed

    @property
    def generation(self) -> int:
        """Number of the partition map in force; part of a sink's transaction ids."""
        return len(self.generations) - 1

    @property
    def partitions(self) -> int:
        """Partition count of the map in force: what keys are hashed over. 0 is exclusive."""
        return self.generations[-1].partitions

    @property
    def numbers(self) -> range:
        """Numbers of the partitions that consumers share."""
        return range(self.first, self.operating_partitions)

    @property
    def going(self) -> list[int]:
        """Partitions that the map no longer names and that are to be drained and removed (S2)."""
        return [n for n in self.numbers if n not in numbers(self.partitions)] if self.generations else []

    @property
    def every(self) -> range:
        """Numbers of all tables that the queue ever had: a table is never deleted, for its log remembers who wrote what."""
        counts = [g.partitions for g in self.generations]
        return range(PARENT if 0 in counts else 0, max(counts, default=0))

    @property
    def stuck(self) -> bool:
        """Whether messages may be left in the parent of a queue that became partitioned (S6)."""
        return PARENT in self.every and self.first != PARENT and self.gone.get(PARENT, 0) < self._parents_cut

    @property
    def _parents_cut(self) -> int:
        return max((g.cuts.get(PARENT, 0) for g in self.generations), default=0)

    @property
    def usable(self) -> bool:
        """Whether it can be written and read: it has partitions and is not being deleted."""
        return bool(self.generations) and not self.deleted

    @property
    def status(self) -> Status:
        if self.deleted:
            return "Deleting"
        if not self.generations:
            return "ScalingUp"
        if self.scaling is not None and not self.scaling.opened:
            return "ScalingUp" if self.scaling.partitions > self.partitions else "ScalingDown"
        return "ScalingDown" if self.going else "Ready"

    @property
    def key_types(self) -> list[Any]:
        types = {f["name"]: f["type"] for f in self.schema["fields"]}
        return [types[name] for name in self.key]


def replay(name: str, facts: Iterable[QueueFact], state: QueueState | None = None) -> QueueState | None:
    """The state after these facts, which follow `state` or begin the queue; None if there are none."""
    for fact in facts:
        if state is None:
            if fact.kind != "QueueCreated":
                raise ValueError(f"fact {fact.kind} cannot follow nothing")
            state = _created(name, fact.body)
        else:
            state = after(state, fact)
    return state


def after(state: QueueState, fact: QueueFact) -> QueueState:
    """The state after one more fact.

    Raises
    ------
    ValueError
        If it cannot follow.
    """
    return replace(_after(state, fact), revision=state.revision + 1)


def _after(state: QueueState, fact: QueueFact) -> QueueState:
    """The state after one more fact, but for its revision.

    Raises
    ------
    ValueError
        If it cannot follow.
    """
    body, scaling = fact.body, state.scaling
    match fact.kind:
        case "PartitionsCreated" if not (state.generations or state.deleted):
            _must(body["partitions"] == state.configured_partitions, "the queue was created with another count")
            return _opened(state, body["partitions"])
        case "QueueDeleted":
            return replace(state, deleted=True)
        case _ if not state.usable:
            pass
        case "ScalingStarted" if scaling is None:
            _must(body["mode"] in MODES, f"there is no mode {body['mode']!r}")
            _must(bool(body["partitions"]) or state.copying is None, "what is stuck is being copied")
            drain, confirmed = body["mode"] == "drain", body.get("confirmed")
            started = Scaling(body["partitions"], body["mode"], not drain, ingress=state.ingress, confirmed=confirmed)
            ingress = state.ingress and not drain
            return replace(state, scaling=started, ingress=ingress, configured_partitions=body["partitions"])
        case "QueueDrained" if scaling is not None and not scaling.drained:
            return replace(state, scaling=replace(scaling, drained=True))
        case "ScalingCancelled" if scaling is not None and not scaling.drained:
            return replace(state, scaling=None, ingress=scaling.ingress, configured_partitions=state.partitions)
        case "GenerationOpened" if scaling is not None and scaling.drained and not scaling.opened:
            cuts = {int(p): cut for p, cut in body["cuts"].items()}
            _must(body["partitions"] == scaling.partitions, "the count that was decided is another")
            sealed = {*numbers(state.partitions), *numbers(scaling.partitions)}
            _must(cuts.keys() == sealed, "not exactly the partitions of both maps are sealed")
            ended = Generation(state.partitions, cuts)
            state = replace(state, generations=(*state.generations[:-1], ended))
            left = replace(scaling, opened=True) if scaling.mode == "drain" else None
            return replace(_opened(state, body["partitions"]), scaling=left)
        case "PartitionsRemoved":
            ends = {int(p): end for p, end in body["ends"].items()}
            last = numbers(state.partitions)
            may = set(state.every).difference(last)
            _must(set(state.going) <= ends.keys() <= may, "not exactly what the map no longer names is removed")
            return replace(state, first=last.start, operating_partitions=last.stop, gone={**state.gone, **ends})
        case "ScalingEnded" if scaling is not None and scaling.opened:
            return replace(state, scaling=None, ingress=scaling.ingress)
        case "IngressDisabled" | "IngressEnabled" if scaling is None or scaling.mode != "drain":
            return replace(state, ingress=fact.kind == "IngressEnabled")
        case "StuckCopyStarted" if state.stuck and state.copying is None:
            _must(scaling is None or bool(scaling.partitions), "the parent is about to come back")
            return replace(state, copying=body["start"])
        case "StuckCopied" if state.stuck:
            _must(body["end"] <= state._parents_cut, "the parent does not hold so many messages")
            return replace(state, gone={**state.gone, PARENT: body["end"]}, copying=None)
        case "ReplicaAdded":
            return replace(state, replicas=(*state.replicas, body["location"]))
        case "ReplicaRemoved":
            return replace(state, replicas=tuple(r for r in state.replicas if r != body["location"]))
        case "QueueFenced":
            return replace(state, fenced_by=body["location"])
    raise ValueError(f"fact {fact.kind} cannot follow {state.status}")


def _must(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def _opened(state: QueueState, count: int) -> QueueState:
    """A new map is in force, and its partitions are shared. Those that go are shared until they are drained, but not the parent."""
    now = numbers(count)
    kept = state.numbers if state.generations else now
    parent = PARENT in now  # what is left in the parent of a queue that becomes partitioned is stuck
    return replace(
        state,
        first=PARENT if parent else 0,
        operating_partitions=max(now.stop, kept.stop),
        generations=(*state.generations, Generation(count)),
    )


def _created(name: str, body: dict[str, Any]) -> QueueState:
    return QueueState(
        name=name,
        queue_id=body["queue_id"],
        schema=body["schema"],
        key=tuple(body["key"]),
        settings=QueueSettings.parse(body["settings"]),
        configured_partitions=body["partitions"],
    )


def created(queue_id: str, schema: Struct, key: Iterable[str], partitions: int, settings: QueueSettings) -> QueueFact:
    body = {
        "queue_id": queue_id,
        "schema": schema,
        "key": list(key),
        "partitions": partitions,
        "settings": settings.model_dump(),
    }
    return QueueFact("QueueCreated", json.loads(json.dumps(body)))
