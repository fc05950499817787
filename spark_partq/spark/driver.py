"""The driver's side of its queries' memberships: callbacks, manual acknowledgement, reports of finished micro-batches.

One `Driver` serves all queries of this process. It starts with `register` and listens for the planners (`channel`, `address`). Spark tells
the driver which micro-batches have finished and which queries have ended (`spark_events`).
"""

from __future__ import annotations

import hmac
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from spark_partq.core.ids import QueuePartition
from spark_partq.spark import address
from spark_partq.spark.address import Address
from spark_partq.spark.at_exit import at_exit
from spark_partq.spark.channel import JsonConnection
from spark_partq.spark.spark_events import SparkEvents
from spark_partq.storage.procedures.consume.application import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long a driver waits if it cannot accept a planner's connection, as there may be too many open files.
_AGAIN_S = 1.0

_log = logging.getLogger("spark_partq")


class RebalanceListener:
    """Callbacks for what happens to a group's partitions (H6); override those that you need. Partitions are (queue, number).

    Called on the driver, in a thread of its own, between micro-batches. `on_partitions_assigned` comes before the first micro-batch that has
    the partition. `on_partitions_revoked` comes after the last one and before another query gets the partition. `on_partitions_lost` comes
    when another query may have the partition already. Planning waits for the call. An exception stops the query.
    """

    def on_partitions_assigned(self, partitions: list[QueuePartition]) -> None:
        """This query now owns these partitions."""

    def on_partitions_revoked(self, partitions: list[QueuePartition]) -> None:
        """This query gives up these partitions. All their delivered messages are acknowledged, unless the query was stopped."""

    def on_partitions_lost(self, partitions: list[QueuePartition]) -> None:
        """This query has lost these partitions, and another query may process them by now.

        Its session expired, a handoff took too long, the queue became exclusive or partitioned, a newer process has the instance's name, or
        the process that plans the query has died.
        """

    def on_active_changed(self, flow: str, active: bool) -> None:
        """A flow of this query has become active (it has partitions now), or a standby (it has none)."""


@dataclass(frozen=True)
class FlowChange:
    """The partitions that a flow owns in this micro-batch, and those that it gained and lost since the micro-batch before."""

    owned: tuple[QueuePartition, ...] = ()
    gained: tuple[QueuePartition, ...] = ()
    lost: tuple[QueuePartition, ...] = ()


@dataclass
class Session:
    """A connected planner, and its last report about its partitions."""

    connection: JsonConnection
    group: str
    instance: str
    store: str
    owned: set[QueuePartition] = field(default_factory=set)
    active: dict[str, bool] = field(default_factory=dict)
    batch: Message = field(default_factory=dict)


class Registration:
    """A listener for a group of that name, in one store or in any store. It is called by one thread at a time."""

    def __init__(self, listener: Any, group: str, store: str | None) -> None:
        self._listener, self.group, self.store = listener, group, store
        self.lock = threading.RLock()

    def hears(self, session: Session) -> bool:
        return session.group == self.group and self.store in (None, session.store)

    def call(self, report: Message) -> None:
        """Call those methods that the listener has."""
        with self.lock:
            for what in ("revoked", "lost", "assigned"):
                partitions = _partitions(report.get(what, []))
                if partitions:
                    self._call(f"on_partitions_{what}", partitions)
            for flow, active in report.get("active", {}).items():
                self._call("on_active_changed", flow, active)

    def _call(self, name: str, *arguments: Any) -> None:
        function: Callable[..., None] | None = getattr(self._listener, name, None)
        if function is not None:
            function(*arguments)


class Driver:
    """The server in the driver's Python process.

    Attributes
    ----------
    address : Address or None
        Where the driver listens, for `PartqDataSource.of`; None if it cannot listen. Then it has logged a warning, and queries work without
        it.
    """

    _instances: ClassVar[dict[int, Driver]] = {}  # by process, as a fork has no thread that serves
    _starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: list[Session] = []
        self._listeners: list[Registration] = []
        self._spark = SparkEvents(self)
        self.address: Address | None = None
        try:
            self.address, server = address.listen()
        except OSError as error:
            _log.warning(
                "this driver cannot listen for its queries: %s. The queries work without the driver: listeners of groups hear nothing, and what a query "
                "finishes is acknowledged with its next micro-batch, so that handoffs take longer. Let TMPDIR name a folder with a short "
                "path in which this user can write",
                error,
            )
            return
        at_exit(self.address.remove)
        threading.Thread(target=self._accept, args=(server,), daemon=True, name="partq-driver").start()

    @classmethod
    def of_process(cls) -> Driver:
        """The driver's side of all queries of this process."""
        with cls._starting:
            found = cls._instances.get(os.getpid())
            if found is None:
                found = cls._instances[os.getpid()] = cls()
            return found

    @classmethod
    def started(cls) -> Driver | None:
        """The driver's side of all queries of this process, if it was started."""
        return cls._instances.get(os.getpid())

    def serve(self, spark: SparkSession) -> None:
        """Receive the events of the session's queries, as soon as one of them joins a group."""
        self._spark.add(spark)

    def serves(self, spark: SparkSession) -> bool:
        return self._spark.knows(spark)

    # ---- for the application
    def add_listener(self, group: str, listener: Any, store: str | None = None) -> None:
        added = Registration(listener, group, store)
        with added.lock:  # what planners report meanwhile is told to the listener after this
            with self._lock:
                self._listeners.append(added)
                known = [
                    {"assigned": sorted(session.owned), "active": dict(session.active)}
                    for session in self._sessions
                    if added.hears(session)
                ]
            try:
                for report in known:
                    added.call(report)
            except BaseException:
                with self._lock:
                    self._listeners.remove(added)
                raise

    def sessions(self, group: str, store: str | None = None) -> list[Session]:
        with self._lock:
            return [s for s in self._sessions if s.group == group and store in (None, s.store)]

    # ---- for the queries
    def finished(self, offset: Message, stateful: bool = False) -> None:
        self._send((offset["group"], offset["instance"]), {"finished": offset, "stateful": stateful})

    def terminated(self, member: tuple[str, str]) -> None:
        self._send(member, {"terminated": True})

    def _send(self, member: tuple[str, str], message: Message) -> None:
        with self._lock:
            connections = [s.connection for s in self._sessions if (s.group, s.instance) == member]
        for connection in connections:
            connection.send(message)

    # ---- planners
    def _accept(self, server: socket.socket) -> None:
        while server.fileno() >= 0:
            try:
                client, _ = server.accept()
                threading.Thread(
                    target=self._serve, args=(JsonConnection(client),), daemon=True, name="partq-planner"
                ).start()
            except (OSError, RuntimeError) as error:  # there may be too many files or threads for a while
                _log.warning("the connection of a planner could not be accepted: %s: %s", type(error).__name__, error)
                threading.Event().wait(_AGAIN_S)

    def _serve(self, connection: JsonConnection) -> None:
        try:
            session = self._greeted(connection)
            if session is not None:
                self._serve_planner(session)
        except Exception as error:  # it goes on without a driver
            _log.warning("the connection to a planner ends: %s: %s", type(error).__name__, error)
        finally:
            connection.close()

    def _greeted(self, connection: JsonConnection) -> Session | None:
        """The session of a planner, from its first message; None if it is not a planner of this driver."""
        said = connection.receive() or {}
        names = [said.get(name) for name in ("token", "group", "instance", "store")]
        if self.address is None or not all(isinstance(name, str) for name in names):
            return None
        token, group, instance, store = map(str, names)
        is_mine = hmac.compare_digest(token.encode(), self.address.token.encode())
        return Session(connection, group, instance, store) if is_mine else None

    def _serve_planner(self, session: Session) -> None:
        self._spark.listen()
        with self._lock:
            self._sessions.append(session)
        try:
            while (message := session.connection.receive()) is not None:
                answer = (
                    self._spark.application() if "joins" in message else {"error": self._apply_report(session, message)}
                )
                session.connection.send({"answer": answer})
        finally:
            with self._lock:
                self._sessions.remove(session)
            self._ended(session)

    def _ended(self, session: Session) -> None:
        """Report as lost the partitions of a planner that died, or could not reach the store to leave its group: no other process would."""
        has_now = {place for other in self.sessions(session.group, session.store) for place in other.owned}
        lost = sorted(session.owned - has_now)
        if lost:
            self._apply_report(session, {"lost": lost})

    def _apply_report(self, session: Session, message: Message) -> str | None:
        """Apply a planner's report and call every listener. Returns the first error of a callback, if one raised."""
        assigned, revoked, lost = (_partitions(message.get(what, [])) for what in ("assigned", "revoked", "lost"))
        with self._lock:
            session.owned = (session.owned - set(revoked) - set(lost)) | set(assigned)
            session.active.update(message.get("active", {}))
            session.batch = message.get("batch", session.batch)
            listeners = [added for added in self._listeners if added.hears(session)]
        failed = None
        for listener in listeners:
            try:
                listener.call(message)
            except BaseException as error:  # also one that would end this thread, and with it the listeners
                _log.exception("a listener of group %s failed", session.group)
                failed = failed or f"{type(error).__name__}: {error}"
        return failed


def _partitions(values: Sequence[Sequence[Any]]) -> list[QueuePartition]:
    return [(str(queue), int(number)) for queue, number in values]


def flow_changes(group: str, store: str | None = None) -> dict[str, FlowChange]:
    """For each flow of the group's queries in this driver, what it owns, gained and lost. For use in ``foreachBatch``."""
    found: dict[str, FlowChange] = {}
    driver = Driver.started()
    for session in driver.sessions(group, store) if driver is not None else []:
        owned: Mapping[str, Any] = session.batch.get("owned", {})
        for flow, change in session.batch.get("changes", {}).items():
            parts = (owned.get(flow, []), change["gained"], change["lost"])
            found[flow] = FlowChange(*(tuple(_partitions(p)) for p in parts))
    return found


def claims(group: str, store: str) -> dict[QueuePartition, tuple[str, int, int, str]]:
    """For each partition that a query of this process owns: queue id, number, epoch, incarnation.

    A query reports its epochs when it plans something. So a query that has lost a partition and is idle since then still has its old epochs.
    If two queries claim a partition, the one that owns it counts, then the one with the higher epoch.
    """
    found: dict[QueuePartition, tuple[bool, int, str, str]] = {}
    driver = Driver.started()
    for session in driver.sessions(group, store) if driver is not None else []:
        for queue, number, queue_id, _, epoch in session.batch.get("epochs", []):
            place = queue, int(number)
            claim = place in session.owned, int(epoch), queue_id, session.batch["incarnation"]
            found[place] = max(claim, found.get(place, claim))
    return {
        place: (queue_id, place[1], epoch, incarnation) for place, (_, epoch, queue_id, incarnation) in found.items()
    }
