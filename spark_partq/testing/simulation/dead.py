"""Messages that kill whoever is given them, and the dead-message queue where they end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.queue.manifest import decode as decode_manifest
from spark_partq.core.queue.manifest import parse_name
from spark_partq.core.queue.sink_ids import redriven_sink
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.facts import Kind as ReplicaKind
from spark_partq.storage.files import Files
from spark_partq.storage.log.entries import decode
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.store import Store, partition_folder
from spark_partq.testing.simulation.reader import Reader
from spark_partq.testing.simulation.setup import PRIMARY
from spark_partq.testing.simulation.stored import Message, StoredPartition, hashes_of_keys, rows_of

QUEUE = "dead"

_REDRIVEN = f"partq:sink/{redriven_sink(QUEUE)}"
_RELEASES = Kind.KEYS_RELEASED, Kind.POSITION_RESET, Kind.GROUP_DELETED
_AGAIN = Kind.POSITION_RESET, Kind.GROUP_DELETED, Kind.QUEUE_REMOVED
_MANIFEST = re.compile(r"queues/dead/manifests/[^/]+/([^/]+\.json)")
_REPLICA = re.compile(r"(queues/dead/replica)/_delta_log/\d{20}\.json")
_LOG = re.compile(r"(queues/dead/partitions/partition=-?\d+)/_delta_log/\d{20}\.json")


def kills(id_: str, percent: int) -> bool:
    """Whether a message is one of so many of a hundred that kill."""
    return crc32(f"poison {id_}".encode()) % 100 < percent


def is_redriven(transactions: Iterable[str]) -> bool:
    """Whether an entry of a partition's log puts messages back."""
    return any(app == _REDRIVEN or app.startswith(f"{_REDRIVEN}/") for app in transactions)


class _Batches:
    """The batches of sinks that keep positions.

    Attributes
    ----------
    moves : dict
        By file the positions that its batch moves. Those of a group that reads a partition again have other names than before.
    """

    def __init__(self) -> None:
        self.moves: dict[str, frozenset[str]] = {}
        self._positions: dict[str, dict[int, Mapping[str, int]]] = {}  # of each sink, by the numbers of its batches

    def begun(self, file: str, data: bytes) -> None:
        """A manifest has appeared."""
        name = parse_name(file)
        if name is None:
            return
        manifest, known = decode_manifest(name, data), self._positions.setdefault(name.sink_id, {})
        before = known.get(max((number for number in known if number < name.batch_id), default=-1), {})
        moved = frozenset(app for app, end in manifest.positions.items() if before.get(app) != end)
        known[name.batch_id] = manifest.positions
        self.moves |= dict.fromkeys((file.path for file in manifest.files), moved)

    def keep(self, queue: Queue) -> None:
        """Those that this copy of the queue knows are the last ones."""
        manifests = Manifests(queue.store, queue.name, queue.state.queue_id)
        for sink_id, known in self._positions.items():
            last = max((name.batch_id for name in manifests.of_sink(sink_id)), default=-1)
            last = max(last, *(table.recorded(f"partq:sink/{sink_id}") for table in queue.every_table()))
            self._positions[sink_id] = {number: positions for number, positions in known.items() if number <= last}


@dataclass
class DeadMessages:
    """What is in the dead-message queue, by group.

    Attributes
    ----------
    holds : bool
        What follows a dead message of its key goes there, too.
    apart : bool
        One group may let messages of a key expire that another has read: each is given what is put back of the other's, too.
    too_old : function
        Whether a message that was enqueued then, in milliseconds since 1970, is too old now.
    live : str
        The store in which it is used.
    left_out_of : dict
        What each group has ever put aside.
    held : dict
        By group the keys of which a message is there.
    redriven : dict
        By group what was there, had not been given to it before, and was put back; `all_redriven` has all that was put back.
    interrupted : bool
        A redrive ended when it had put back some. What died again by then comes behind what was held behind it.
    """

    holds: bool = False
    apart: bool = False
    too_old: Callable[[str, int], bool] = lambda _id, _enqueued_ms: True
    live: str = PRIMARY
    written: dict[str, set[str]] = field(default_factory=dict)
    left_out_of: dict[str, set[str]] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)
    redriven: dict[str, set[str]] = field(default_factory=dict)
    all_redriven: set[str] = field(default_factory=set)
    interrupted: bool = False
    _died_again: set[str] = field(default_factory=set)
    _former: set[str] = field(default_factory=set)  # of a queue that was deleted
    _batches: _Batches = field(default_factory=_Batches)
    # Of each message there (group, partition, offset, id) the positions that said that it is there, and how often the group had been reset
    _moves: dict[tuple[str, int, int, str], dict[frozenset[str], int]] = field(default_factory=dict)
    _resets: list[tuple[str, int | None]] = field(default_factory=list)  # of a group in a partition; None is all

    def changed(self, uri: str, files: Files, path: str, data: bytes) -> str:
        """A file has appeared in that queue, or in its copy; what is wrong, or nothing."""
        if uri != self.live:
            return self._copied(uri, files, path, data)
        if match := _MANIFEST.fullmatch(path):
            self._batches.begun(match[1], data)
        match = _LOG.fullmatch(path)
        if match is None:
            return ""
        again = uri != PRIMARY  # the copy of the group may not know that it has put it aside
        for add in (add for add in decode(data).adds if not add.tags):  # with tags it was rewritten
            for row in rows_of(files, f"{match[1]}/{add.path}"):
                place = row["origin_group"], row["origin_partition"], row["origin_offset"], row["id"]
                before, times_reset = self._moves.setdefault(place, {}), self._times_reset(*place[:2])
                if self._batches.moves[add.path] in before or len(before) > times_reset + again:
                    return f"DEAD TWICE: {row['id']} of group {row['origin_group']} was there before"
                before[self._batches.moves[add.path]] = times_reset
                self._died_again |= {row["id"]} & self.all_redriven
                self.written.setdefault(row["origin_group"], set()).add(row["id"])
        return ""

    def _copied(self, uri: str, files: Files, path: str, data: bytes) -> str:
        match = _REPLICA.fullmatch(path)
        rows = (row for add in decode(data).adds for row in rows_of(files, f"{match[1]}/{add.path}")) if match else ()
        if any(row["kind"] == ReplicaKind.PROMOTED for row in rows):
            self._go_on_there(uri, files)
        return ""

    def _go_on_there(self, uri: str, files: Files) -> None:
        """The copy is used. What it lacks is not there, and was not put aside."""
        self.live, store, there = uri, Store.over(files), set[tuple[str, int, int, str]]()
        queue = open_queue(store, QUEUE)
        for number in queue.state.all_partitions:
            folder = partition_folder(QUEUE, number)
            for path in LogFolder(store, folder).load().files:
                rows = rows_of(files, f"{folder}/{path}")
                there |= {(r["origin_group"], r["origin_partition"], r["origin_offset"], r["id"]) for r in rows}
        self._batches.keep(queue)
        self._moves = {place: moves for place, moves in self._moves.items() if place in there}
        self.written = {group: {place[3] for place in there if place[0] == group} for group, *_ in there}

    def in_range(self, group: str, log: StoredPartition, skipped: GroupFact) -> dict[int, str]:
        """What a group leaves out by a fact, by offset: what is there, and what it put aside though somebody was deleting it.

        What it put aside before it was reset says nothing.
        """
        number = skipped.partition_id[1]
        times_reset = self._times_reset(group, number)
        return {
            n: log.ids[n]
            for n in range(skipped.offset or 0, skipped.delivered or 0)
            if n not in log.deleted or times_reset in self._moves.get((group, number, n, log.ids[n]), {}).values()
        }

    def left_out(
        self, group: str, messages: Mapping[int, Message], skipped: GroupFact, log: StoredPartition, queue: QueueState
    ) -> str:
        """A group leaves out messages of a partition, by their offsets, as a fact says; what is wrong, or nothing.

        Of a message that was put aside and is deleted by now, in both queues, the group may know the key, or not.
        """
        body, held = json.loads(skipped.body or "{}"), self.held.setdefault(group, set())
        self.left_out_of.setdefault(group, set()).update(message.id for message in messages.values())
        keys = {message.key for message in messages.values()}
        if body["why"] == "expired" and (early := self._early(messages, log.enqueued_ms)):
            return f"EARLY: {', '.join(early)} left out, and not too old"
        if body["why"] == "held" and not keys <= held:
            return f"HELD: group {group} leaves out messages of {keys - held}, of which none is dead"
        if not body["dead_letter_queue"]:
            lost = [message.id for message in messages.values()] if body["why"] != "expired" else []
            return f"DEAD LOST: group {group} leaves out {', '.join(lost)} for good" if lost else ""
        if self.holds:
            there = {message.key for at, message in messages.items() if at not in log.deleted}
            hashes = hashes_of_keys(queue, keys)
            held.update(key for key, hash_ in hashes.items() if key in there or hash_ in body.get("holds", ()))
        number = skipped.partition_id[1]
        missing = [m.id for at, m in messages.items() if (group, number, at, m.id) not in self._moves]
        return f"DEAD LOST: group {group} leaves out {', '.join(missing)}" if missing else ""

    def _early(self, messages: Mapping[int, Message], enqueued_ms: Mapping[int, int]) -> list[str]:
        return [message.id for at, message in messages.items() if not self.too_old(message.id, enqueued_ms.get(at, 0))]

    def decided(self, group: str, fact: GroupFact) -> None:
        """Some facts end that keys are held; after some a message that is there may be put aside once more."""
        if fact.kind in _RELEASES:
            self.held.pop(group, None)
        if fact.kind in _AGAIN:
            self._resets.append((group, fact.partition))

    def _times_reset(self, group: str, partition: int) -> int:
        """How often a group began to read a partition again: it may put a message aside once more each time."""
        return sum(where == group and number in (None, partition) for where, number in self._resets)

    def forget_queue(self, ids: Iterable[str]) -> None:
        """The queue was deleted, which had these. What is dead of it may be put back into the next one, behind whatever came there.

        A group that does not know it yet may put some of it aside later.
        """
        self.held.clear()
        self.redriven.clear()  # what was put back went with the queue
        self._former = self._former.union(ids, *self.written.values())

    def put_back(self, id_: str, readers: Mapping[str, Reader]) -> str:
        """A dead message is in the queue once more: every group is to be given it; what is wrong, or nothing."""
        groups = [group for group, ids in self.written.items() if id_ in ids]
        if not groups:  # another group had put it aside, too: it comes once more
            return "" if id_ in self.all_redriven else f"REDRIVEN: {id_} is put back, and was not dead"
        for group in groups:
            self.written[group].discard(id_)
            if group not in readers or id_ not in readers[group].given:
                self.redriven.setdefault(group, set()).add(id_)
        for reader in readers.values():
            reader.given.discard(id_)
            reader.excused.discard(id_)
        self.all_redriven.add(id_)
        return ""

    def is_out_of_order(self, group: str, id_: str) -> bool:
        """Whether a message that was put back may come to a group after later ones of its key."""
        overtaken = self._former | self._died_again if self.interrupted else self._former
        # Each group is given what other groups had put aside, too, in their order.
        apart = self.apart or len(set(map(frozenset, self.left_out_of.values()))) > 1
        in_order = self.holds and not apart and id_ in self.redriven.get(group, ()) and id_ not in overtaken
        return id_ in self.all_redriven and not in_order

    def of(self, group: str) -> set[str]:
        return self.written.get(group, set())
