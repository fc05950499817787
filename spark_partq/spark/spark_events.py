"""What the driver learns from Spark: which micro-batches have finished, which queries have ended, and what the application is.

Spark calls this process through PySpark's callback server: a port, open only to this machine, through which the JVM calls Python. A session
that reads no queue as a stream does not need the server, so it is started when the first query joins a group.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from spark_partq.spark.at_exit import at_exit
from spark_partq.storage.procedures.consume.application import Message

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LAST_EVENTS_MS = 2_000

_log = logging.getLogger("spark_partq")


class QueryHandler(Protocol):
    """Handles what Spark reports about queries that read queues."""

    def finished(self, offset: Message, stateful: bool) -> None:
        """A micro-batch that ends at this offset has finished. `stateful`: its query keeps state by key."""
        ...

    def terminated(self, member: tuple[str, str]) -> None:
        """The query of that group and instance has ended."""
        ...


class SparkEvents:
    """The sessions of this process whose queries are listened to."""

    def __init__(self, handler: QueryHandler) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self._sessions: list[SparkSession] = []
        self._heard: list[SparkSession] = []  # the sessions that have a listener
        self._wanted = False

    def add(self, spark: SparkSession) -> None:
        """Listen to a session as soon as a query needs that; at once if a query has needed it already."""
        with self._lock:
            self._sessions = [known for known in self._sessions if not _is_stopped(known)]
            self._heard = [known for known in self._heard if not _is_stopped(known)]
            if not self._knows(spark):
                self._sessions.append(spark)
        if self._wanted:
            self.listen()

    def knows(self, spark: SparkSession) -> bool:
        """Whether the session was added. Several Python objects may stand for one session of the JVM: each micro-batch has its own."""
        with self._lock:
            return self._knows(spark)

    def _knows(self, spark: SparkSession) -> bool:
        return any(known._jsparkSession == spark._jsparkSession for known in self._sessions)

    def listen(self) -> None:
        """Let Spark report the queries of all sessions."""
        with self._lock:
            self._wanted = True
            for spark in self._sessions:
                if not any(spark is heard for heard in self._heard):
                    self._heard.append(spark)
                    _listen(spark, _QueryListener(self._handler))

    def application(self) -> Message:
        """The application and its executors. The flows of a query that joins now may run on these executors."""
        with contextlib.suppress(Exception):  # it is only for people; a query joins even if the session is ending
            context = self._sessions[-1].sparkContext
            return {"application": context.applicationId, "executors": _executors(context)}
        return {}


class _QueryListener:
    """Gets the progress of queries from Spark.

    It takes Spark's Java events as they are. PySpark's own listener makes one call for each field of each event to turn it into Python, and
    it fails on a query that has job tags.
    """

    def __init__(self, handler: QueryHandler) -> None:
        self._handler = handler
        self._members: dict[str, set[tuple[str, str]]] = {}  # run id -> (group, instance) of its sources

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress().json())
        for source in progress["sources"]:
            offset = source.get("endOffset")
            if isinstance(offset, dict) and {"group", "instance", "queues", "version"} <= offset.keys():
                self._members.setdefault(progress["runId"], set()).add((offset["group"], offset["instance"]))
                self._handler.finished(offset, bool(progress.get("stateOperators")))

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        for member in self._members.pop(event.runId().toString(), set()):
            self._handler.terminated(member)

    class Java:
        implements: ClassVar[list[str]] = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def _listen(spark: SparkSession, listener: _QueryListener) -> None:
    """Add the listener, if Spark allows it. A query works without a listener, too."""
    # Imported here, as a program without Spark imports this file to acknowledge.
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    streams: Any = spark.streams
    try:
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        wrapped = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(listener)
        streams._jsqm.addListener(wrapped)
    except Exception as error:
        _log.warning("Spark does not tell which micro-batches have finished: %s; handoffs take longer", error)
        return

    def end() -> None:
        """Remove the listener. The JVM outlives this process by a moment, and would log errors when it calls the listener."""
        with contextlib.suppress(Exception):
            context._jsc.sc().listenerBus().waitUntilEmpty(_LAST_EVENTS_MS)
            streams._jsqm.removeListener(wrapped)

    at_exit(end)


def _is_stopped(spark: SparkSession) -> bool:
    context: Any = spark.sparkContext
    return context._jsc is None


def _executors(context: SparkContext) -> list[str]:
    """``id@host`` of each executor that is up, sorted by id; in local mode that is the driver."""
    scala: Any = context._jsc.sc()
    known = scala.statusStore().executorList(True)
    found = [(e.id(), e.hostPort().rpartition(":")[0]) for e in (known.apply(i) for i in range(known.size()))]
    executors = [(name, host) for name, host in found if name != "driver" or scala.isLocal()]
    return [f"{name}@{host}" for name, host in sorted(executors, key=lambda e: (len(e[0]), e[0]))]
