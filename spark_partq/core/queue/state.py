"""State of a queue, replayed from the facts of its control table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from spark_partq.core import format, stored
from spark_partq.core.format import Format
from spark_partq.core.payload.dead_letters import without_origin
from spark_partq.core.payload.keys import DEFAULT_HASH, KeyHash
from spark_partq.core.payload.schema import Struct, normalized, types_of
from spark_partq.core.queue import reading
from spark_partq.core.queue.facts import MODES, Kind, Phase, QueueFact, Status
from spark_partq.core.queue.former import Former
from spark_partq.core.queue.partition_map import PARENT, Generation, partition_numbers
from spark_partq.core.queue.scaling import Scaling
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.transitions import TRANSITIONS


@dataclass(frozen=True)
class QueueState:
    """What a queue is.

    Attributes
    ----------
    queue_id : str
        UUID; a queue created again under an old name has another one, so it inherits no positions.
    schema : dict
        Payload columns in Spark's JSON form.
    added : tuple of str
        The columns that were added later: a file may lack them, and its messages have null there.
    key : tuple of str
        Columns of the partition key, empty if the queue has none.
    configured_partitions : int
        The partition count that was asked for (S8); 0 is an exclusive queue.
    first, operating_partitions : int
        The partitions that consumers share have the numbers ``[first, operating_partitions)``. `first` is -1 while the parent is one of them.
    generations : tuple of Generation
        Every map so far; the last is in force.
    removed_ends : dict
        For each partition that was removed, the offset at which it ended. If it comes back, it goes on there.
    copying : int or None
        While stuck messages are being copied: the parent's offset at which the copy began. The copy ends before the parent may come back.
    groups : dict
        The groups that read the queue, or are about to: by name, how often a group of that name had been deleted when it attached. A message
        that one of them has not acknowledged is removed only by its age. `attached_in`: the generation when it attached.
    resets : dict
        For groups whose positions were set, or are about to be set: the number of the last reset. A process that measures what they have settled
        makes sure that this reset is made or void.
    fenced_by : str or None
        Location of the replica that takes over. `last_fence`: the number of the last `QueueFenced` fact that named a replica, 0 if none did.
        `replica_ids`: by location, the UUID of each replica, except of those that an older program added.
    incarnation : str
        UUID: equal to `queue_id` until a replica is promoted, which gets another one. Under another incarnation offsets may name other messages,
        so a checkpoint has it.
    former : tuple of Former
        The incarnations before, the latest first.
    former_graces : tuple of (int, int)
        Each `vacuum_grace_ms` that was lowered, and the store's time, milliseconds since 1970, until which it still counts.
    key_hash : str
        The hash by which keys are placed, under every map.
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
    removed_ends: dict[int, int] = field(default_factory=dict)
    copying: int | None = None
    scaling: Scaling | None = None
    ingress: bool = True
    groups: dict[str, int] = field(default_factory=dict)
    attached_in: dict[str, int] = field(default_factory=dict)
    resets: dict[str, int] = field(default_factory=dict)
    format: Format = field(default_factory=format.of_new_tables)
    replicas: tuple[str, ...] = ()
    replica_ids: dict[str, str] = field(default_factory=dict)
    fenced_by: str | None = None
    last_fence: int = 0
    incarnation: str = ""
    former: tuple[Former, ...] = ()
    former_graces: tuple[tuple[int, int], ...] = ()
    key_hash: KeyHash = DEFAULT_HASH
    added: tuple[str, ...] = ()
    deleted: bool = False
    revision: int = 1  # number of facts replayed

    @property
    def generation(self) -> int:
        """Number of the partition map in force; part of a sink's transaction ids."""
        return len(self.generations) - 1

    @property
    def partition_count(self) -> int:
        """The partition count of the map in force, by which keys are placed. 0 is exclusive."""
        return self.generations[-1].partition_count

    @property
    def partition_numbers(self) -> range:
        """Numbers of the partitions that consumers share."""
        return range(self.first, self.operating_partitions)

    def not_named_by(self, partition_count: int) -> list[int]:
        """The partitions that consumers share and that a map of this count does not name."""
        named = partition_numbers(partition_count)
        return [number for number in self.partition_numbers if number not in named]

    @property
    def removing(self) -> list[int]:
        """Partitions that the map no longer names and that are to be drained and removed (S2)."""
        return self.not_named_by(self.partition_count) if self.generations else []

    @property
    def all_partitions(self) -> range:
        """Numbers of all tables that the queue ever had. A table is never deleted, as its log remembers which sink wrote what."""
        counts = [g.partition_count for g in self.generations]
        return range(PARENT if 0 in counts else 0, max(counts, default=0))

    @property
    def stuck(self) -> bool:
        """Whether messages may be left in the parent of a queue that became partitioned (S6)."""
        return (
            PARENT in self.all_partitions
            and self.first != PARENT
            and self.removed_ends.get(PARENT, 0) < self.end_of_parent
        )

    def shared_parent_with(self, group: str) -> bool:
        """Whether the queue was exclusive when this group attached, or at any time since."""
        return any(g.partition_count == 0 for g in self.generations[self.attached_in.get(group, 0) :])

    @property
    def end_of_parent(self) -> int:
        """The last cut of the parent: how many messages it has, while the queue is partitioned."""
        return max((g.cuts.get(PARENT, 0) for g in self.generations), default=0)

    def grace_ms(self, store_ms: int) -> int:
        """How long a file that nothing names is kept, at that time of the store. A former, longer grace still counts for its writers."""
        former = (grace_ms for grace_ms, until_ms in self.former_graces if store_ms < until_ms)
        return max(self.settings.vacuum_grace_ms, *former, 0)

    @property
    def may_be_marked(self) -> tuple[int, bool]:
        """The marks that a table of the queue may have by now: the last generation under which it may be sealed, and whether it may be fenced (S7)."""
        scaling = self.scaling
        is_sealing = scaling is not None and scaling.drained and not scaling.opened
        return self.generation - (not is_sealing), self.fenced_by is not None

    def explains(self, sealed: int, fenced: bool) -> bool:
        """Whether a table of the queue may have these marks by now: last sealed under that generation, and fenced or not (S7)."""
        last, may_be_fenced = self.may_be_marked
        return sealed <= last and (may_be_fenced or not fenced)

    @property
    def holds_dead_messages(self) -> bool:
        """Whether this is a dead-message queue. Reading a message there does not put it back, so only age, or the queue's size, removes messages."""
        return without_origin(self.schema) is not None

    @property
    def usable(self) -> bool:
        """Whether the queue can be written and read: it has partitions and is not being deleted."""
        return bool(self.generations) and not self.deleted

    @property
    def phase(self) -> Phase:
        if self.deleted:
            return Phase.DELETED
        if not self.generations:
            return Phase.CREATING
        if self.scaling is None:
            return Phase.STABLE
        if self.scaling.mode != "drain":
            return Phase.SCALING
        if self.scaling.opened:
            return Phase.REBALANCING
        return Phase.DRAINED if self.scaling.drained else Phase.DRAINING

    @property
    def status(self) -> Status:
        if self.deleted:
            return Status.DELETING
        if not self.generations:
            return Status.SCALING_UP
        if self.scaling is not None and not self.scaling.opened:
            return Status.SCALING_UP if self.scaling.partition_count > self.partition_count else Status.SCALING_DOWN
        return Status.SCALING_DOWN if self.removing else Status.READY

    @property
    def key_types(self) -> list[Any]:
        return types_of(self.schema, self.key)


def replay(name: str, facts: Iterable[QueueFact], state: QueueState | None = None) -> QueueState | None:
    """The state after these facts, which follow `state` or begin the queue; None if there are none.

    Raises
    ------
    ValueError
        If one of the facts cannot follow.
    """
    for fact in facts:
        if state is not None:
            state = after(state, fact)
        elif fact.kind == Kind.QUEUE_CREATED:
            reading.check_body(Kind.QUEUE_CREATED, fact.body)
            state = _created(name, fact.body)
        else:
            raise ValueError(f"kind {fact.kind} cannot follow nothing")
    return state


def after(state: QueueState, fact: QueueFact) -> QueueState:
    """The state after one more fact.

    Raises
    ------
    ValueError
        If the fact cannot follow.
    """
    kind = stored.one_of(Kind, fact.kind, "kind")
    reading.check_body(kind, fact.body)
    following = [phase for before, phase in TRANSITIONS[kind] if before is state.phase]
    _must(bool(following), f"kind {kind} cannot follow {state.status} ({state.phase})")
    changed = replace(_after(state, kind, fact.body), revision=state.revision + 1)
    _must(changed.phase in following, f"kind {kind} cannot lead from {state.phase} to {changed.phase}")
    return changed


def _after(state: QueueState, kind: Kind, body: dict[str, Any]) -> QueueState:
    """The state after one more fact, which is allowed in this phase. The revision is not changed yet."""
    match kind:
        case Kind.PARTITIONS_CREATED:
            _must(body["partitions"] == state.configured_partitions, "partitions: it was created with another count")
            return _opened(state, body["partitions"])
        case Kind.QUEUE_DELETED:
            return replace(state, deleted=True)
        case Kind.PARTITIONS_REMOVED:
            return _removed(state, {int(p): end for p, end in body["ends"].items()})
        case Kind.INGRESS_DISABLED | Kind.INGRESS_ENABLED:
            return replace(state, ingress=kind is Kind.INGRESS_ENABLED)
        case Kind.STUCK_COPY_STARTED:
            _must(state.stuck and state.copying is None, "nothing is stuck, or it is being copied already")
            _must(state.scaling is None or bool(state.scaling.partition_count), "the parent is about to come back")
            return replace(state, copying=body["start"])
        case Kind.STUCK_COPIED:
            _must(state.stuck, "nothing is stuck")
            _must(body["end"] <= state.end_of_parent, "end: the parent does not hold so many messages")
            return replace(state, removed_ends={**state.removed_ends, PARENT: body["end"]}, copying=None)
        case Kind.GROUP_ATTACHED:
            earlier = state.groups.get(body["group"], -1)
            _must(earlier < body["deletions"], f"group {body['group']!r} is attached after {earlier} deletions")
            groups, attached_in = {body["group"]: body["deletions"]}, {body["group"]: state.generation}
            return replace(state, groups=state.groups | groups, attached_in=state.attached_in | attached_in)
        case Kind.GROUP_DETACHED:
            _must(state.groups.get(body["group"]) == body["deletions"], f"group {body['group']!r} is not attached so")
            left = [{g: n for g, n in known.items() if g != body["group"]} for known in (state.groups, state.resets)]
            return replace(state, groups=left[0], resets=left[1])
        case Kind.GROUP_RESETTING:
            _must(body["group"] in state.groups, f"group {body['group']!r} is not attached")
            earlier = state.resets.get(body["group"], 0)
            _must(earlier < body["number"], f"number: reset {earlier} of group {body['group']!r} was announced before")
            return replace(state, resets={**state.resets, body["group"]: body["number"]})
        case Kind.REPLICA_ADDED:
            added = {body["location"]: body["replica_id"]} if "replica_id" in body else {}
            return replace(state, replicas=(*state.replicas, body["location"]), replica_ids=state.replica_ids | added)
        case Kind.REPLICA_REMOVED:
            locations = tuple(location for location in state.replicas if location != body["location"])
            ids = {location: id_ for location, id_ in state.replica_ids.items() if location in locations}
            return replace(state, replicas=locations, replica_ids=ids)
        case Kind.QUEUE_FENCED:
            last_fence = state.last_fence if body["location"] is None else state.revision
            return replace(state, fenced_by=body["location"], last_fence=last_fence)
        case Kind.PROMOTED:
            _must(state.incarnation != body["incarnation"], "incarnation: it was promoted so before")
            ends = {int(number): end for number, end in body["ends"].items()}
            former = Former(state.incarnation, ends), *state.former
            return replace(state, incarnation=body["incarnation"], former=former)
        case Kind.QUEUE_ALTERED:
            return _altered(state, body)
        case Kind.COLUMNS_ADDED:
            return _with_columns(state, body["columns"])
        case Kind.MESSAGES_DELETED:
            known = format.DELETED_MESSAGES in state.format.features
            _must(known, "the format says nothing of messages that are deleted")
            return state
        case Kind.FORMAT_RAISED:
            return replace(state, format=state.format.raised(body))
    return _after_scaling_fact(state, kind, body)


def _with_columns(state: QueueState, columns: list[Any]) -> QueueState:
    _must(format.ADDED_COLUMNS in state.format.features, "the format says nothing of columns that are added")
    columns = normalized({"type": "struct", "fields": columns})["fields"]
    schema, names = {**state.schema, "fields": [*state.schema["fields"], *columns]}, [c["name"] for c in columns]
    folded = [column["name"].lower() for column in schema["fields"]]
    _must(len(set(folded)) == len(folded), f"of the columns {', '.join(names)} one is there")
    return replace(state, schema=schema, added=(*state.added, *names))


def _altered(state: QueueState, body: dict[str, Any]) -> QueueState:
    grace_ms, until_ms = state.settings.vacuum_grace_ms, body.get("grace_until_ms")
    settings = QueueSettings.stored({**state.settings.model_dump(), **body["settings"]})
    _must(not (wrong := settings.wrong_columns(state.schema)), wrong)
    lowered = settings.vacuum_grace_ms < grace_ms
    _must(
        lowered == (until_ms is not None),
        "grace_until_ms: it does not say until when the former vacuum_grace_ms counts, or says it of none",
    )
    former = ((grace_ms, until_ms),) if until_ms is not None else ()
    return replace(state, settings=settings, former_graces=(*state.former_graces, *former))


def _after_scaling_fact(state: QueueState, kind: Kind, body: dict[str, Any]) -> QueueState:
    """The same for a fact that begins a change of the partition count, or continues it."""
    if kind is Kind.SCALING_STARTED:
        _must(body["mode"] in MODES, f"there is no mode {body['mode']!r}")
        _must(bool(body["partitions"]) or state.copying is None, "what is stuck is being copied")
        drain, confirmed = body["mode"] == "drain", body.get("confirmed")
        started = Scaling(body["partitions"], body["mode"], not drain, ingress=state.ingress, confirmed=confirmed)
        ingress = state.ingress and not drain
        return replace(state, scaling=started, ingress=ingress, configured_partitions=body["partitions"])
    scaling = state.scaling
    if scaling is None:
        raise ValueError("no change of the partition count is under way")
    match kind:
        case Kind.QUEUE_DRAINED:
            return replace(state, scaling=replace(scaling, drained=True))
        case Kind.SCALING_CANCELLED:
            return replace(state, scaling=None, ingress=scaling.ingress, configured_partitions=state.partition_count)
        case Kind.GENERATION_OPENED:
            _must(body["partitions"] == scaling.partition_count, "partitions: the count that was decided is another")
            cuts = {int(p): cut for p, cut in body["cuts"].items()}
            sealed = {*partition_numbers(state.partition_count), *partition_numbers(scaling.partition_count)}
            _must(cuts.keys() == sealed, f"cuts: not those of both maps: see {sorted(cuts.keys() ^ sealed)[:3]}")
            for number, cut in cuts.items():
                least = _least_cut(state, number)
                _must(cut >= least, f"cuts: partition {number} is cut at {cut}, and ended at {least} before")
            ended = Generation(state.partition_count, cuts)
            state = replace(state, generations=(*state.generations[:-1], ended))
            left = replace(scaling, opened=True) if scaling.mode == "drain" else None
            return replace(_opened(state, body["partitions"]), scaling=left)
        case Kind.SCALING_ENDED:
            return replace(state, scaling=None, ingress=scaling.ingress)
    raise ValueError(f"fact {kind} has no meaning here")


def _least_cut(state: QueueState, number: int) -> int:
    """The least offset at which a partition may be cut: no cut lies below an earlier cut, or below the end at which the partition was removed."""
    cuts = (generation.cuts.get(number, 0) for generation in state.generations)
    return max(state.removed_ends.get(number, 0), *cuts, 0)


def _must(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def _opened(state: QueueState, partition_count: int) -> QueueState:
    """A new map is in force, and its partitions are shared. Partitions to be removed are shared until they are drained, except the parent."""
    now = partition_numbers(partition_count)
    kept = state.partition_numbers if state.generations else now
    parent = PARENT in now  # messages left in the parent of a queue that becomes partitioned are stuck
    return replace(
        state,
        first=PARENT if parent else 0,
        operating_partitions=max(now.stop, kept.stop),
        generations=(*state.generations, Generation(partition_count)),
    )


def _removed(state: QueueState, ends: dict[int, int]) -> QueueState:
    named = partition_numbers(state.partition_count)
    may = set(state.all_partitions).difference(named)
    _must(set(state.removing) <= ends.keys() <= may, "ends: not exactly what the map no longer names is removed")
    removed_ends = {**state.removed_ends, **ends}
    return replace(state, first=named.start, operating_partitions=named.stop, removed_ends=removed_ends)


def _created(name: str, body: dict[str, Any]) -> QueueState:
    settings = QueueSettings.stored(body["settings"])
    _must(not (wrong := settings.wrong_columns(body["schema"])), wrong)
    return QueueState(
        name=name,
        queue_id=body["queue_id"],
        incarnation=body["queue_id"],
        schema=body["schema"],
        key=tuple(body["key"]),
        settings=settings,
        configured_partitions=body["partitions"],
        format=format.parse(body),
        key_hash=body.get("key_hash", DEFAULT_HASH),
    )
