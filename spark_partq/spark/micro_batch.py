"""Which messages a running micro-batch holds: those that were planned, by Spark's own log of offsets, and those that came."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.utils import is_remote

from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.delivery.positions import Position, positions_of
from spark_partq.core.errors import InvalidArgumentError, PartqError
from spark_partq.core.ids import PartitionId, QueuePartition
from spark_partq.spark.options import Options
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.store import Store
from spark_partq.storage.wanted import Wanted, foreign_row

T = TypeVar("T")

_WITHOUT_FILES = {
    "LogicalRDD",
    "LocalRelation",
    "Range",
    "OneRowRelation",
}  # leaves of plans; the rows of a micro-batch are the first
SOURCE = ("_queue", "_partition", "_offset")  # which message a row comes from


@dataclass
class Run:
    """One run of a query, from its start to its end.

    It has the first micro-batch of the run in which this module was called, the options of the queues that the query reads, and what the last
    micro-batch has written.
    """

    first: str
    options: list[Options]
    writing: str = ""
    written: dict[tuple[str, ...], tuple[Any, ...]] = field(default_factory=dict)
    turns: dict[tuple[str, ...], threading.RLock] = field(default_factory=dict)


_runs: dict[str, Run] = {}  # by run id, the latest runs
_MOST_RUNS = 1_000
_changing_runs = threading.Lock()


class MicroBatch(NamedTuple):
    """A group's messages in a micro-batch, as they were planned. A replay may hold fewer."""

    group: str
    positions: dict[QueuePartition, Position]

    @property
    def by_id(self) -> dict[PartitionId, Position]:
        return self.with_ids(self.positions)

    def with_ids(self, found: Mapping[QueuePartition, T]) -> dict[PartitionId, T]:
        """The same mapping, with the ids of the queues instead of their names."""
        return {(self.positions[place].queue_id, place[1]): value for place, value in found.items()}

    def wanted(self, left: Mapping[PartitionId, int]) -> Wanted:
        """For each partition, its range in the micro-batch and the offset from which on the target lacks messages: `left`, or the range's end if
        it lacks none.
        """
        return {
            (queue, number): (p.start, p.end, left.get((p.queue_id, number), p.end))
            for (queue, number), p in self.positions.items()
        }


def micro_batch(batch: DataFrame) -> MicroBatch:
    """The messages that were planned for a micro-batch. Its `foreachBatch` function calls this with its DataFrame, or with one made from that.

    Raises
    ------
    InvalidArgumentError
        Outside of such a function, with Spark Connect, or if the query reads no queue, or queues for several groups. Also if there are rows
        although the micro-batch holds no messages.
    """
    running, number = _running(batch)
    before, now = _offsets(running, int(number) - 1), _offsets(running, int(number))
    planned = [
        _nothing_of(offset) if before.get(source) == end else offset
        for source, end in now.items()
        if (offset := _of_queues(end)) is not None
    ]
    groups = sorted({offset.group for offset in planned})
    if len(groups) != 1:
        read = f"reads queues by groups {', '.join(groups)}" if groups else "reads no queue"
        raise InvalidArgumentError(
            f"this query {read}; positions must be those of one group. Use a query for each group"
        )
    positions: dict[QueuePartition, Position] = {}
    for offset in planned:
        for place, position in positions_of(offset).items():
            if place in positions and positions[place].end > positions[place].start and position.end > position.start:
                several = positions[place].queue_id != position.queue_id
                raise InvalidArgumentError(
                    f"this micro-batch reads partition {place[1]} of {'two queues that are both named' if several else 'queue'} {place[0]!r}"
                    f"{'; use a query for each' if several else ' twice; read each queue once in a query'}",
                    queue=place[0],
                )
            if position.end > position.start or place not in positions:
                positions[place] = position
    if _may_begin_earlier(_run_of(running, number), number, planned):
        positions = {p: replace(at, start=0) if at.end > at.start else at for p, at in positions.items()}
    if all(at.end == at.start for at in positions.values()) and set(SOURCE) <= set(batch.columns):
        kept = batch.select(*SOURCE).head()  # no message is wanted, so no later step would look at the rows
        if kept is not None:
            raise foreign_row(*kept)
    return MicroBatch(groups[0], positions)


def _may_begin_earlier(run: Run, number: str, planned: Iterable[StreamOffset]) -> bool:
    """Whether rows may come from messages below the planned range: with manual acknowledgement a replay begins at the group's position.

    Only the first micro-batch of a run is a replay. In every other micro-batch the query itself kept such a row, and a target may have later
    ones.
    """
    by_hand = any(option.ack == "manual" for option in run.options) or any(offset.by_hand for offset in planned)
    return run.first == number and by_hand


def writing_run(batch: DataFrame) -> Run | None:
    """The run of the running query, with what its micro-batch has written so far. None outside of a micro-batch."""
    try:
        running, number = _running(batch)
    except InvalidArgumentError:
        return None
    if running is None:
        return None
    run = _run_of(running, number)
    with _changing_runs:
        if run.writing != number:
            run.writing, run.written = number, {}
    return run


@contextlib.contextmanager
def writing_once(batch: DataFrame, *target: str, otherwise: str) -> Iterator[Run | None]:
    """Refuse other rows for a target to which the running micro-batch has written already: the target would take them for the rows that it has.

    A function may repeat its work with the same rows, and so may Spark. Only one thread at a time writes into a target. Yields the run of the
    query; each start of the query is another run. Yields None outside of a micro-batch.

    Raises
    ------
    InvalidArgumentError
    """
    run = writing_run(batch)
    if run is None:
        yield None
        return
    # The hash of the plan ignores names of columns, and what is in the files that it reads. Files that are written again have other names.
    rows = batch.semanticHash(), batch.schema.json(), _files_of(batch)
    with run.turns.setdefault(target, threading.RLock()):
        written = run.written
        if written.get(target, rows) != rows:
            raise InvalidArgumentError(otherwise)
        yield run
        written[target] = rows


def _files_of(batch: DataFrame) -> list[str]:
    """The files that its plan reads. Mostly these are none, which Spark would only say after it has optimised the plan."""
    plan = batch._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    reads_none = all(leaves.apply(n).nodeName() in _WITHOUT_FILES for n in range(leaves.size()))
    if reads_none and plan.subqueriesAll().isEmpty():
        return []
    return sorted(batch.inputFiles())


def bounds_of(batch: DataFrame) -> list[tuple[Any, Any]]:
    """Where the running micro-batch begins and ends in each source that it reads, from the JSON of Spark's log of offsets.

    Spark's log does not say where the first micro-batch of a checkpoint begins: then the beginning is None.

    Raises
    ------
    InvalidArgumentError
        As `micro_batch`.
    """
    running, number = _running(batch)
    starts = _offsets(running, int(number) - 1)
    return [(starts.get(source), end) for source, end in _offsets(running, int(number)).items()]


def offsets_digest(batch: DataFrame) -> str | None:
    """A digest of where the running micro-batch ends in each source.

    Spark plans these ends once, and repeats the micro-batch with them. None if Spark does not say.

    Raises
    ------
    InvalidArgumentError
        As `micro_batch`.
    """
    running, number = _running(batch)
    ends = {} if running is None else _logged(running, int(number))
    return digest_of(ends) if ends else None


def digest_of(ends: Mapping[str, str]) -> str:
    """The digest of where a micro-batch ends in each source, as docs/PROTOCOL.md defines it for manifests."""
    return hashlib.sha256(json.dumps(ends).encode()).hexdigest()


def _offsets(running: Any, number: int) -> dict[str, Any]:
    return {source: json.loads(end) for source, end in _logged(running, number).items()}


def _logged(running: Any, number: int) -> dict[str, str]:
    """Where a micro-batch ended in each source, by the source's place in the query or by its name. Empty if Spark no longer keeps these offsets."""
    logged = running.offsetLog().get(number) if number >= 0 else None
    if logged is None or not logged.isDefined():
        return {}
    if str(logged.get().getClass().getSimpleName()) == "OffsetMap":  # spark.sql.streaming.offsetLog.formatVersion is 2
        by_name = logged.get().offsetsMap()
        names = sorted(by_name.keys().mkString("\n").split("\n"))
        found = {name: by_name.apply(name) for name in names}
    else:
        offsets = logged.get().offsets()
        found = {str(i): offsets.apply(i) for i in range(offsets.size())}
    return {source: str(end.get().json()) for source, end in found.items() if end.isDefined()}


def delivered(batch: DataFrame) -> dict[QueuePartition, Position]:
    """For each partition that has rows in this DataFrame, the range from the first message to the last. Runs a Spark job.

    Raises
    ------
    InvalidArgumentError
        As `micro_batch`; also if rows cannot be traced to messages of the micro-batch.
    """
    check_traceable(batch)
    planned = micro_batch(batch).positions
    bounds = batch.groupBy(*SOURCE[:2]).agg(sf.min(SOURCE[2]).alias("first"), sf.max(SOURCE[2]).alias("last"))
    found = {(row[0], row[1]): (row["first"], row["last"]) for row in bounds.collect()}
    for place, (first, last) in found.items():
        at = planned.get(place)
        if at is None or first < at.start or last >= at.end:
            raise foreign_row(*place, first if at is None or first < at.start else last)
    return {place: replace(planned[place], start=first, end=last + 1) for place, (first, last) in found.items()}


def queue_ends(batch: DataFrame, planned: MicroBatch, places: Collection[PartitionId]) -> dict[PartitionId, int]:
    """Where partitions of a micro-batch's queues end now. Partitions that are not found are left out."""
    found: dict[PartitionId, int] = {}
    for queue in open_sources(batch, planned):
        with contextlib.suppress(PartqError):  # as below
            for place in [p for p in places if p[0] == queue.state.queue_id]:
                table = queue.table(place[1])
                table.refresh()
                found[place] = table.next_offset
    return found


def open_sources(batch: DataFrame, planned: MicroBatch) -> Iterator[Queue]:
    """The queues of a micro-batch that can be opened."""
    ids = {position.queue_id: name for (name, _), position in planned.positions.items()}
    for store in stores_read(batch):
        for queue_id, name in sorted(ids.items()):
            with contextlib.suppress(PartqError):  # the planner reports the error
                queue = open_queue(store, name)
                if queue.state.queue_id == queue_id:  # a query may read queues of one name in two stores
                    yield queue


def stores_read(batch: DataFrame) -> list[Store]:
    """The stores of the queues that the running query reads."""
    return list({option.store.uri: option.store for option in _run_of(*_running(batch)).options}.values())


def _run_of(running: Any, number: str) -> Run:
    run = str(running.runId().toString())  # the job group has this id, too, until the user sets another group
    if run not in _runs:
        leaves = running.logicalPlan().collectLeaves()
        relations = [leaves.apply(i).relation() for i in range(leaves.size()) if _is_source(leaves.apply(i))]
        options = [Options.parse(dict(r.options().asCaseSensitiveMap())) for r in relations if _is_queue(r)]
        with _changing_runs:
            if len(_runs) >= _MOST_RUNS:
                del _runs[next(iter(_runs))]
            return _runs.setdefault(run, Run(number, options))
    return _runs[run]


def _is_source(leaf: Any) -> bool:
    return str(leaf.getClass().getSimpleName()) == "StreamingDataSourceV2ScanRelation"


def _is_queue(relation: Any) -> bool:
    return "partq" in str(relation.table().name()).lower()


def _running(batch: DataFrame) -> tuple[Any, str]:
    """Spark's own view of the running query, and the number of its micro-batch.

    Raises
    ------
    InvalidArgumentError
        As `micro_batch`.
    """
    if is_remote():
        raise InvalidArgumentError("positions of a micro-batch are not known with Spark Connect; use a classic session")
    context = batch.sparkSession.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if query_id is None or batch_id is None:
        raise InvalidArgumentError(
            "these rows are not those of a micro-batch: call this in a function for writeStream.foreachBatch"
        )
    running = batch.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    return running.get(_java(batch).java.util.UUID.fromString(query_id)), str(batch_id)


def check_traceable(rows: DataFrame) -> None:
    """Refuse rows that do not say which messages they come from.

    Raises
    ------
    InvalidArgumentError
    """
    lacking = [name for name in SOURCE if name not in rows.columns]
    if lacking:
        raise InvalidArgumentError(
            f"the rows have no {', '.join(lacking)}, so nobody can tell which messages they come from: keep these columns through select, "
            "filter and explode. An aggregate has none: keep its state in a table of your own, in a transaction that holds the positions "
            "too (partq.positions)",
            columns=lacking,
        )


def _java(batch: DataFrame) -> Any:
    return batch.sparkSession.sparkContext._jvm


def _nothing_of(offset: StreamOffset) -> StreamOffset:
    """A micro-batch without messages of this source.

    Spark repeats the offset of the micro-batch before if a source has nothing new, for example if only the watermark or a timer moves the query
    on.
    """
    return replace(offset, ranges={place: Range(r.epoch, r.end, r.end) for place, r in offset.ranges.items()})


def _of_queues(value: Any) -> StreamOffset | None:
    """An offset of this package's source; None if it is another source's."""
    return StreamOffset.from_json(value) if isinstance(value, dict) and {"group", "queues"} <= value.keys() else None
