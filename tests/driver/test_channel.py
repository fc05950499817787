"""A planner and its driver over the local socket, without Spark."""

from __future__ import annotations

import json
import os
import pickle
import socket
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict

import spark_partq as partq
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.spark.address import Address
from spark_partq.spark.channel import DriverClient
from spark_partq.spark.driver import Driver, claims
from spark_partq.spark.source import PartqDataSource
from tests.driver.ends import GREETING, Handler, own_driver
from tests.helpers import eventually

OFFSET = StreamOffset("g", "i", {}, {})


@pytest.fixture
def driver() -> Iterator[Driver]:
    with tempfile.TemporaryDirectory(prefix="pt", dir="/tmp") as folder, own_driver(folder) as made:
        yield made


def address_of(driver: Driver) -> Address:
    assert driver.address is not None
    return driver.address


class Raw:
    """A connection that says what it likes."""

    def __init__(self, driver: Driver, *lines: bytes) -> None:
        self.socket = address_of(driver).connect()
        self.socket.settimeout(10)
        self.socket.sendall(b"".join(lines))

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def test_a_planner_is_known_by_its_token(driver: Driver) -> None:
    client = DriverClient(address_of(driver), GREETING, Handler())
    assert client.request({"group": "g", "assigned": [["q", 3]]}) == {"error": None}
    (session,) = driver.sessions("g", "/store")
    assert session.instance == "i" and session.owned == {("q", 3)} and driver.sessions("g", "/elsewhere") == []


@pytest.mark.parametrize(
    "greeting",
    [
        line(GREETING),
        line({**GREETING, "token": "wrong"}),
        line({**GREETING, "token": "ä"}),
        line({**GREETING, "token": None}),
        line({"token": "TOKEN"}),
        b"garbage\n",
        b"[]\n",
        b"null\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"{",
    ],
)
def test_whoever_does_not_say_it_is_not_served(driver: Driver, greeting: bytes) -> None:
    raw = Raw(driver, greeting.replace(b"TOKEN", address_of(driver).token.encode()), line({"joins": True}))
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.is_closed() and driver.sessions("g") == []


@pytest.mark.parametrize("said", [b"garbage\n", b"[1]\n", line({"assigned": 5}), line({"active": 5})])
def test_a_planner_that_talks_nonsense_is_forgotten(driver: Driver, said: bytes) -> None:
    raw = Raw(driver, line({**GREETING, "token": address_of(driver).token}), said)
    assert raw.is_closed()
    eventually(lambda: driver.sessions("g") == [], "its end", 10)


def test_every_finished_micro_batch_is_told(driver: Driver) -> None:
    """Also while an answer is awaited: a listener takes its time over a report, and micro-batches finish meanwhile."""
    handler, entered, leave = Handler(), threading.Event(), threading.Event()

    class Slow(partq.RebalanceListener):
        def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
            entered.set()
            assert leave.wait(10)

    driver.add_listener("g", Slow())
    client = DriverClient(address_of(driver), GREETING, handler)
    asking = threading.Thread(target=client.request, args=({"group": "g", "assigned": [["q", 0]]},))
    asking.start()
    assert entered.wait(10)
    for _ in range(3):
        driver.finished(OFFSET.to_json())
    eventually(lambda: handler.finished == [OFFSET] * 3, "the words", 10)
    leave.set()
    asking.join()
    driver.terminated(("g", "i"))
    eventually(lambda: handler.terminated, "the end", 10)


def test_a_planner_notices_that_its_driver_has_ended(driver: Driver) -> None:
    handler = Handler()
    client = DriverClient(address_of(driver), GREETING, handler)
    eventually(lambda: len(driver.sessions("g")) == 1, "the planner", 10)
    driver.sessions("g")[0].connection.close()
    eventually(lambda: handler.terminated and not client.connected, "the end", 10)
    assert client.request({"joins": True}) == {}


# ---- how the address comes to a planner, and to nobody else
def sent(source: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(source))


def test_a_source_brings_its_driver_to_the_planner(store: str) -> None:
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=1)
    address = Address("/folder", "the-token")
    registered = sent(PartqDataSource.of(address))
    made = sent(registered(CaseInsensitiveDict({"path": store, "queue": "q"})))
    assert made.driver == address and made.name() == "partq" and made.options["queue"] == "q"
    schema = made.schema()
    assert b"the-token" in cloudpickle.dumps(made)
    reader = made.streamReader(schema)
    assert reader._driver == address
    for brought_to_tasks in (made, reader):
        assert b"the-token" not in cloudpickle.dumps(brought_to_tasks)


def test_a_batch_read_brings_it_to_nobody(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    made = PartqDataSource.of(Address("/folder", "the-token"))(CaseInsensitiveDict({"path": store, "queue": "q"}))
    reader = made.reader(made.schema())
    assert b"the-token" not in cloudpickle.dumps(made) + cloudpickle.dumps(reader)


def test_each_registration_has_its_own(store: str) -> None:
    one, other = PartqDataSource.of(Address("/one", "1")), PartqDataSource.of(None)
    assert one.driver == Address("/one", "1") and other.driver is None is PartqDataSource.driver
    assert one({}).driver == Address("/one", "1")
    assert pickle.loads(pickle.dumps(PartqDataSource({}))).driver is None


class Recorder(partq.RebalanceListener):
    """Writes down its calls, and may be held up in the first one."""

    def __init__(self, held_up: bool = False) -> None:
        self.calls: list[Any] = []
        self.entered, self.leave = threading.Event(), threading.Event()
        if not held_up:
            self.leave.set()

    def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
        self._heard("assigned", partitions)

    def on_partitions_revoked(self, partitions: list[tuple[str, int]]) -> None:
        self._heard("revoked", partitions)

    def on_partitions_lost(self, partitions: Any) -> None:
        self._heard("lost", partitions)

    def on_active_changed(self, flow: str, active: bool) -> None:
        self._heard("active" if active else "standby", flow)

    def _heard(self, what: str, value: Any) -> None:
        self.entered.set()
        assert self.leave.wait(10)
        self.calls.append((what, value))


def test_a_listener_hears_of_its_group_in_its_store(driver: Driver) -> None:
    here, elsewhere, anywhere = Recorder(), Recorder(), Recorder()
    driver.add_listener("g", here, "/store")
    driver.add_listener("g", elsewhere, "/elsewhere")
    driver.add_listener("g", anywhere)
    clients = [
        DriverClient(address_of(driver), {**GREETING, "store": store}, Handler()) for store in ("/store", "/elsewhere")
    ]
    for number, client in enumerate(clients):
        client.request({"group": "g", "assigned": [["q", number]]})
    first, second = ("assigned", [("q", 0)]), ("assigned", [("q", 1)])
    assert (here.calls, elsewhere.calls, anywhere.calls) == ([first], [second], [first, second])


def test_a_listener_that_comes_later_hears_what_is_owned_and_of_nothing_else(driver: Driver) -> None:
    owns, idle = (DriverClient(address_of(driver), {**GREETING, "instance": i}, Handler()) for i in ("a", "b"))
    owns.request({"group": "g", "assigned": [["q", 0]], "active": {"a/0": True}})
    idle.request({"group": "g", "active": {"b/0": False}})
    listener = Recorder()
    driver.add_listener("g", listener)
    assert sorted(listener.calls) == [("active", "a/0"), ("assigned", [("q", 0)]), ("standby", "b/0")]


def test_a_listener_that_is_being_added_hears_later_reports_later_and_holds_up_no_other(driver: Driver) -> None:
    client = DriverClient(address_of(driver), GREETING, Handler())
    client.request({"group": "g", "assigned": [["q", 0]]})
    slow = Recorder(held_up=True)
    adding = threading.Thread(target=driver.add_listener, args=("g", slow))
    adding.start()
    assert slow.entered.wait(10)
    other = Recorder()
    DriverClient(address_of(driver), {**GREETING, "group": "h"}, Handler()).request(
        {"group": "h", "assigned": [["r", 1]]}
    )
    driver.add_listener("h", other)
    assert other.calls == [("assigned", [("r", 1)])]
    revoking = threading.Thread(target=client.request, args=({"group": "g", "revoked": [["q", 0]]},))
    revoking.start()
    (session,) = driver.sessions("g")
    eventually(lambda: session.owned == set(), "the report", 10)
    slow.leave.set()
    adding.join()
    revoking.join()
    assert slow.calls == [("assigned", [("q", 0)]), ("revoked", [("q", 0)])]


@pytest.mark.parametrize("left", [True, False])
def test_what_a_planner_had_that_ends_without_a_word_is_lost(driver: Driver, left: bool) -> None:
    """H6: it was killed, or the store was away when it was to leave. What another query has by then stays."""
    heard = Recorder()
    driver.add_listener("g", heard)
    first, second = (DriverClient(address_of(driver), {**GREETING, "instance": i}, Handler()) for i in ("a", "b"))
    first.request({"group": "g", "assigned": [["q", 0], ["q", 1], ["q", 2]]})
    second.request({"group": "g", "assigned": [["q", 1]]})
    if left:
        first.request({"group": "g", "revoked": [["q", 0], ["q", 1], ["q", 2]]})
    else:
        first.request({"group": "g", "revoked": [["q", 2]]})
    first._connection.close()
    eventually(lambda: len(driver.sessions("g", "/store")) == 1, "the end of its session")
    if not left:
        eventually(lambda: heard.calls[3:], "word of what it had")
        assert heard.calls[3:] == [("lost", [("q", 0)])]
    second.request({"group": "g", "assigned": [["q", 3]]})
    assert heard.calls[-1] == ("assigned", [("q", 3)]) and len(heard.calls) == (4 if left else 5)


# ---- claims
@pytest.mark.parametrize("loser", [0, 1])
def test_who_has_lost_a_partition_and_is_idle_claims_it_no_more(
    driver: Driver, loser: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queries of a group in one driver, whichever came first: acknowledgements count for the one that has it now."""
    monkeypatch.setattr(Driver, "_instances", {os.getpid(): driver})
    clients = [DriverClient(address_of(driver), {**GREETING, "instance": i}, Handler()) for i in ("a", "b")]

    def planned(client: DriverClient, epoch: int) -> None:
        batch = {"owned": {}, "changes": {}, "epochs": [["q", 0, "id", 0, epoch]], "incarnation": f"process-{epoch}"}
        client.request({"group": "g", "batch": batch})

    clients[loser].request({"group": "g", "assigned": [["q", 0]]})
    planned(clients[loser], 3)
    assert claims("g", "/store") == {("q", 0): ("id", 0, 3, "process-3")}
    clients[loser].request({"group": "g", "revoked": [["q", 0]]})
    assert claims("g", "/store") == {("q", 0): ("id", 0, 3, "process-3")}  # it acknowledges what it was given
    clients[1 - loser].request({"group": "g", "assigned": [["q", 0]]})
    planned(clients[1 - loser], 5)
    assert claims("g", "/store") == {("q", 0): ("id", 0, 5, "process-5")}


# ---- flow_changes
def test_flow_changes_starts_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called in every micro-batch, each time with another object for the session."""
    started: list[Any] = []
    monkeypatch.setattr(Driver, "_instances", {})
    monkeypatch.setattr(Driver, "serve", lambda self, spark: started.append(spark))
    not_asked: Any = object()
    for _ in range(3):
        assert partq.flow_changes(not_asked, "g") == {}
    assert started == [] and Driver._instances == {}


def test_flow_changes(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Driver, "started", lambda: driver)
    client = DriverClient(address_of(driver), GREETING, Handler())
    batch = {"owned": {"i/0": [["q", 1]]}, "changes": {"i/0": {"gained": [["q", 1]], "lost": []}}}
    client.request({"group": "g", "batch": batch})
    session: Any = None
    here = {"i/0": partq.FlowChange((("q", 1),), (("q", 1),), ())}
    assert partq.flow_changes(session, "g") == partq.flow_changes(session, "g", store="/store") == here
    assert partq.flow_changes(session, "g", store="/elsewhere") == {}


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_whatever_a_listener_raises_is_told(driver: Driver, error: type[BaseException]) -> None:
    """Also what would end the thread that hears the planner: the query stops, and does not go on without its listener."""

    class Broken(partq.RebalanceListener):
        def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
            raise error("no database")

    other = Recorder()
    driver.add_listener("g", Broken())
    driver.add_listener("g", other)
    client = DriverClient(address_of(driver), GREETING, Handler())
    for n in range(2):
        with pytest.raises(partq.ListenerError, match=f"{error.__name__}: no database"):
            client.request({"group": "g", "assigned": [["q", 0]]}, 10)
        assert len(other.calls) == n + 1  # each listener is told, whatever another one raises


def test_a_listener_that_raises_while_it_is_added_is_not_added(driver: Driver) -> None:
    client = DriverClient(address_of(driver), GREETING, Handler())
    client.request({"group": "g", "assigned": [["q", 0]]})

    class NotReady(partq.RebalanceListener):
        def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
            raise OSError("not ready")

    with pytest.raises(OSError, match="not ready"):
        driver.add_listener("g", NotReady())
    client.request({"group": "g", "assigned": [["q", 1]]}, 10)
