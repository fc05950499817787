"""The driver's side of its queries' memberships: callbacks, manual acknowledgement, reports of finished micro-batches.

One `Driver` serves all queries of this JVM. It starts with `register` and listens for the planners (`channel`). Spark tells it which
micro-batches have finished and which queries have ended.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from spark_partq.core.ids import QueuePartition
from spark_partq.spark.channel import JsonConnection, socket_path
from spark_partq.storage.procedures.consume.application import Message

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LAST_EVENTS_MS = 2_000

_log = logging.getLogger("spark_partq")


class RebalanceListener:
    """Callbacks for what happens to a group's partitions (H6); override those that you need. Partitions are (queue, number).

    Called on the driver, in a thread of its own, between the micro-batches that the call is about: `on_partitions_assigned`
    before the first that has the partition, `on_partitions_revoked` after the last and before another query gets it,
    `on_partitions_lost` when another query has it already. Planning waits for the call. An exception stops the query.
    """

    def on_partitions_assigned(self, partitions: list[QueuePartition]) -> None:
        """This query now owns these partitions."""

    def on_partitions_revoked(self, partitions: list[QueuePartition]) -> None:
        """This query gives up these partitions; all that was delivered of them is acknowledged, unless the query was stopped."""

    def on_partitions_lost(self, partitions: list[QueuePartition]) -> None:
        """This query has lost these partitions: its session expired, or a handoff took too long. Another query may process them by now."""

    def on_active_changed(self, flow: str, active: bool) -> None:
        """A flow of this query has become active (it has partitions now), or a standby without any."""


@dataclass(frozen=True)
class FlowChange:
    """The partitions that a flow owns in this micro-batch, and those that it gained and lost since the one before."""

    owned: tuple[QueuePartition, ...] = ()
    gained: tuple[QueuePartition, ...] = ()
    lost: tuple[QueuePartition, ...] = ()


@dataclass
class Session:
    """A connected planner, and what it last reported of its partitions."""

    connection: JsonConnection
    group: str
    instance: str
    store: str
    owned: set[QueuePartition] = field(default_factory=set)
    active: dict[str, bool] = field(default_factory=dict)
    batch: Message = field(default_factory=dict)


class Driver:
    """The server in the driver's Python process."""

    _instances: ClassVar[dict[int, Driver]] = {}
    _starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: str) -> None:
        self._lock = threading.RLock()
        self._sessions: list[Session] = []
        self._listeners: dict[str, list[Any]] = {}
        self._listened: list[SparkSession] = []
        self._server = socket.socket(socket.AF_UNIX)
        _sweep(os.path.dirname(path))
        self._server.bind(f"{path}.new")
        self._server.listen()
        os.rename(f"{path}.new", path)  # a socket without a listener would pass for that of a killed process
        atexit.register(_forget, path, os.getpid())
        threading.Thread(target=self._accept, daemon=True, name="partq-driver").start()

    @classmethod
    def of(cls, spark: SparkSession) -> Driver:
        """The driver of this session's JVM; it gets the events of the session's queries from now on."""
        jvm: Any = spark.sparkContext._jvm
        pid = int(jvm.java.lang.ProcessHandle.current().pid())
        with cls._starting:
            driver = cls._instances.get(pid)
            if driver is None:
                driver = cls._instances[pid] = cls(socket_path(pid))
            if not any(spark is known for known in driver._listened):
                driver._listened = [spark]
                _listen(spark, _QueryListener(driver))
        return driver

    # ---- for the application
    def add_listener(self, group: str, listener: Any) -> None:
        with self._lock:
            self._listeners.setdefault(group, []).append(listener)
            for session in self._sessions:
                if session.group == group:
                    _call([listener], "on_partitions_assigned", sorted(session.owned))
                    for flow, active in session.active.items():
                        _call([listener], "on_active_changed", flow, active)

    def sessions(self, group: str, store: str | None = None) -> list[Session]:
        with self._lock:
            return [s for s in self._sessions if s.group == group and store in (None, s.store)]

    # ---- for the queries
    def finished(self, offset: Message) -> None:
        self._send((offset["group"], offset["instance"]), {"finished": offset})

    def terminated(self, member: tuple[str, str]) -> None:
        self._send(member, {"terminated": True})

    def _send(self, member: tuple[str, str], message: Message) -> None:
        with self._lock:
            connections = [s.connection for s in self._sessions if (s.group, s.instance) == member]
        for connection in connections:
            connection.send(message)

    # ---- planners
    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            threading.Thread(
                target=self._serve, args=(JsonConnection(client),), daemon=True, name="partq-planner"
            ).start()

    def _serve(self, connection: JsonConnection) -> None:
        registration = connection.receive()
        if registration is None:
            return
        session = Session(connection, registration["group"], registration["instance"], registration["store"])
        with self._lock:
            self._sessions.append(session)
        while (message := connection.receive()) is not None:
            answer = (
                self._spark_application() if "joins" in message else {"error": self._apply_report(session, message)}
            )
            connection.send({"answer": answer})
        with self._lock:
            self._sessions.remove(session)
        connection.close()

    def _spark_application(self) -> Message:
        """The application, and its executors, on which the flows of a query that joins now may run."""
        with contextlib.suppress(Exception):  # it is only for people; a query joins even if the session is ending
            context = self._listened[-1].sparkContext
            return {"application": context.applicationId, "executors": _executors(context)}
        return {}

    def _apply_report(self, session: Session, message: Message) -> str | None:
        """Apply a planner's report and call the listeners; returns the error of a callback, if one raised."""
        assigned, revoked, lost = (_partitions(message.get(what, [])) for what in ("assigned", "revoked", "lost"))
        with self._lock:
            session.owned = (session.owned - set(revoked) - set(lost)) | set(assigned)
            session.active.update(message.get("active", {}))
            session.batch = message.get("batch", session.batch)
            listeners = list(self._listeners.get(session.group, []))
        try:
            for name, partitions in (("revoked", revoked), ("lost", lost), ("assigned", assigned)):
                if partitions:
                    _call(listeners, f"on_partitions_{name}", partitions)
            for flow, active in message.get("active", {}).items():
                _call(listeners, "on_active_changed", flow, active)
        except Exception as error:
            _log.exception("a listener of group %s failed", session.group)
            return f"{type(error).__name__}: {error}"
        return None


class _QueryListener:
    """Gets the progress of queries from Spark.

    It takes Spark's Java events as they are: PySpark's own listener turns each field of each event into Python by a call of its
    own, and fails on a query that has job tags.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._members: dict[str, set[tuple[str, str]]] = {}  # run id -> (group, instance) of its sources

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress().json())
        for source in progress["sources"]:
            offset = source.get("endOffset")
            if isinstance(offset, dict) and {"group", "instance", "queues", "version"} <= offset.keys():
                self._members.setdefault(progress["runId"], set()).add((offset["group"], offset["instance"]))
                self._driver.finished(offset)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        for member in self._members.pop(event.runId().toString(), set()):
            self._driver.terminated(member)

    class Java:
        implements: ClassVar[list[str]] = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def _listen(spark: SparkSession, listener: _QueryListener) -> None:
    # Here, as a program without Spark imports this file to acknowledge.
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    wrapped = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(listener)
    streams: Any = spark.streams
    streams._jsqm.addListener(wrapped)

    def end() -> None:
        """Remove the listener: the JVM outlives this process by a moment, and would log errors when it calls it."""
        with contextlib.suppress(Exception):
            context._jsc.sc().listenerBus().waitUntilEmpty(_LAST_EVENTS_MS)
            streams._jsqm.removeListener(wrapped)

    atexit.register(end)


def _executors(context: SparkContext) -> list[str]:
    """``id@host`` of each executor that is up, sorted by id; in local mode that is the driver."""
    scala: Any = context._jsc.sc()
    known = scala.statusStore().executorList(True)
    found = [(e.id(), e.hostPort().rpartition(":")[0]) for e in (known.apply(i) for i in range(known.size()))]
    executors = [(name, host) for name, host in found if name != "driver" or scala.isLocal()]
    return [f"{name}@{host}" for name, host in sorted(executors, key=lambda e: (len(e[0]), e[0]))]


def _partitions(values: Sequence[Sequence[Any]]) -> list[QueuePartition]:
    return [(str(queue), int(number)) for queue, number in values]


def _call(listeners: Sequence[Any], name: str, *arguments: Any) -> None:
    for listener in listeners:
        function: Callable[..., None] | None = getattr(listener, name, None)
        if function is not None:
            function(*arguments)


def _sweep(folder: str) -> None:
    """Remove the sockets of processes that were killed."""
    for name in os.listdir(folder):
        if not name.endswith(".sock"):
            continue
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == errno.ECONNREFUSED:
                os.unlink(path)


def _forget(path: str, owner: int) -> None:
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            os.unlink(path)


def flow_changes(spark: SparkSession, group: str) -> dict[str, FlowChange]:
    """Per flow of the group's queries in this driver: what it owns, gained and lost. For use in ``foreachBatch``."""
    found: dict[str, FlowChange] = {}
    for session in Driver.of(spark).sessions(group):
        owned: Mapping[str, Any] = session.batch.get("owned", {})
        for flow, change in session.batch.get("changes", {}).items():
            parts = (owned.get(flow, []), change["gained"], change["lost"])
            found[flow] = FlowChange(*(tuple(_partitions(p)) for p in parts))
    return found


def claims(group: str, store: str) -> dict[QueuePartition, tuple[str, int, int, str]]:
    """Of each partition that a query of this process owns: queue id, number, epoch, incarnation."""
    found: dict[QueuePartition, tuple[str, int, int, str]] = {}
    for driver in list(Driver._instances.values()):
        for session in driver.sessions(group, store):
            for queue, number, queue_id, _, epoch in session.batch.get("epochs", []):
                found[queue, int(number)] = (queue_id, int(number), int(epoch), session.batch["incarnation"])
    return found
