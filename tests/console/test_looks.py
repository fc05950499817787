"""One look at the store serves all browsers; and what cannot be read is told, beside the last picture."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.console.looks import Looks
from spark_partq.console.reader import Reader
from spark_partq.storage.inspect.watch import StoreWatch
from spark_partq.storage.store import Store
from tests.console.served import Served, console
from tests.groups import Consumer, Lasting
from tests.versions import NEWER, OLDER, needs, raise_group, running


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of the thread of each look."""
    found: list[str] = []
    look = StoreWatch.look

    def watched(watch: StoreWatch) -> Any:
        found.append(threading.current_thread().name)
        return look(watch)

    monkeypatch.setattr(StoreWatch, "look", watched)
    return found


def test_one_look_in_an_interval_for_all(store: str, first: Consumer, counted: list[str]) -> None:
    with console(store, every_s=3600.0) as served:
        assert counted == []  # nobody watches
        with ThreadPoolExecutor(8) as browsers:
            paths = ["/api/store", "/api/groups/g", "/api/queues/q", "/api/groups/g/timeline"] * 8
            answers = list(browsers.map(served.get, paths))
    assert {answer.status for answer in answers} == {200}
    assert counted == ["partq-console"]


def test_looks_come_when_they_are_due(
    store: str, first: Consumer, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before the interval is over; and a store that takes long is left alone as long."""
    now = [0.0]
    monkeypatch.setattr("spark_partq.storage.runtime.SystemRuntime.monotonic_s", lambda _: now[0])
    watched = Looks(Store(store), 2.0)
    for seconds, looked in ((0, 1), (1.9, 1), (0.2, 2), (0.5, 2), (1.6, 3)):
        now[0] += seconds
        watched.refresh()
        assert len(counted) == looked
    look = StoreWatch.look

    def slow(watch: StoreWatch) -> Any:
        now[0] += 30
        return look(watch)

    monkeypatch.setattr(StoreWatch, "look", slow)
    for seconds, looked in ((2, 4), (29, 4), (1.1, 5)):
        now[0] += seconds
        watched.refresh()
        assert len(counted) == looked


def test_what_did_not_change_is_not_sent_again(store: str, first: Consumer) -> None:
    with console(store, every_s=3600.0) as served:
        once = served.get("/api/queues/q")
        again = served.get("/api/queues/q", {"if-none-match": once.headers["etag"]})
        other = served.get("/api/queues/q", {"if-none-match": '"other"'})
    assert (once.status, again.status, again.body, other.body) == (200, 304, b"", once.body)


# ---- trouble
def test_a_store_that_is_deleted(served: Served, store: str) -> None:
    """The error is told, the last picture stays, and a store that is there again is shown again."""
    before = served.found("/api/store")
    shutil.move(store, f"{store}-gone")
    after = served.found("/api/store")
    assert (
        after["error"]["class"] == "NOT_A_STORE" and store in after["error"]["message"] and after["error"]["next_step"]
    )
    assert (after["look"], after["groups"], after["queues"]) == (before["look"], before["groups"], before["queues"])
    for path in ("/api/groups/g", "/api/queues/q"):
        assert served.refused(path, 503)["class"] == "NOT_A_STORE"
    assert served.refused("/api/groups/g/history", 503)["class"] == "NOT_A_STORE"
    shutil.move(f"{store}-gone", store)
    again = served.found("/api/store")
    assert again["error"] is None and again["look"] > before["look"]
    assert served.found("/api/groups/g/history")["end"] > 0


def test_a_store_that_is_made_again(served: Served, store: str) -> None:
    """Its history is that of the new group, though the old one was open."""
    end = served.found("/api/groups/g/history")["end"]
    shutil.rmtree(store)
    partq.create_queue(store, "q", "v long", partitions=1)
    Lasting(store, "x")
    assert [member["instance"] for member in served.found("/api/groups/g")["description"]["members"]] == ["x"]
    served.get("/api/groups/g/history")  # the first to notice may be told that the table is another
    assert served.found("/api/groups/g/history")["end"] < end


def test_a_newer_group(store: str, first: Consumer) -> None:
    """It is told apart from all others, which are shown."""
    with running(OLDER), console(store) as served:
        partq.create_queue(store, "other", "v long", partitions=1)
        Lasting(store, "c", group="late", queues=("other",))
        assert len(served.found("/api/store")["groups"]) == 2
        raise_group(store, needs(2, 2), "late")
        found = served.found("/api/store")
        assert found["error"] is None and [group["name"] for group in found["groups"]] == ["g"]
        assert [(one["kind"], one["name"], one["class"]) for one in found["failed"]] == [
            ("group", "late", "NEWER_STORE"),
            ("queue", "other", "NEWER_STORE"),
        ]
        for path in ("/api/groups/late", "/api/groups/late/history", "/api/queues/other"):
            assert f"upgrade it to {NEWER.RELEASE}" in served.refused(path, 503)["message"]


def test_a_store_that_does_not_answer(store: str, first: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the last look saw is shown meanwhile, and that it is late."""
    stuck, go_on = threading.Event(), threading.Event()
    look = StoreWatch.look

    def slow(watch: StoreWatch) -> Any:
        if stuck.is_set():
            go_on.wait(60)
        return look(watch)

    monkeypatch.setattr(StoreWatch, "look", slow)
    with console(store) as served:
        assert served.found("/api/store")["late"] is False
        stuck.set()
        with mock.patch("spark_partq.console.app._PATIENCE_S", 0.05):
            found = served.found("/api/store")
        assert found["late"] is True and [group["name"] for group in found["groups"]] == ["g"]
        go_on.set()


def test_a_fault_of_the_console_is_no_silence(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreWatch, "look", lambda _: 1 / 0)
    error = served.refused("/api/groups/g", 500)
    assert error["class"] == "INTERNAL" and "ZeroDivisionError" in error["message"]
    monkeypatch.undo()
    assert served.found("/api/groups/g")["description"]["group"] == "g"


def test_the_reader_goes_on_after_an_error(store: str) -> None:
    reader = Reader(Store(store).runtime)
    failed = reader.begin(lambda: 1 / 0)
    assert reader.begin(lambda: 2).result(60) == 2 and isinstance(failed.exception(60), ZeroDivisionError)
    reader.stop()


# ---- the picture of ownership
def bars(found: Any) -> dict[int, list[tuple[str, bool, bool]]]:
    """Of each partition who had it, whether that began in the picture, and whether it ended there."""
    return {
        row["partition"]: [(bar["flow"], bool(bar["began"]), bool(bar["ended"])) for bar in row["bars"]]
        for row in found["rows"]
    }


def test_timeline(served: Served, store: str, first: Consumer) -> None:
    """Who had what when, also after others came and went, with the facts that gave it to them."""
    second = Lasting(store, "b")
    first.release()
    found = served.found("/api/groups/g/timeline")
    owners = {p.partition: p.flow for p in partq.describe_group(store, "g").partitions}
    assert {number: told[-1][0] for number, told in bars(found).items()} == owners
    moved = [number for number, told in bars(found).items() if len(told) == 2]
    assert moved and all(told[0][1:] == (True, True) for number, told in bars(found).items() if number in moved)
    assert [status["status"] for status in found["statuses"]][-2:] == ["Rebalancing", "Ready"]
    assert found["whole"] and found["from"] <= found["rows"][0]["bars"][0]["began"] < found["to"]
    handoffs = [handoff for row in found["rows"] for handoff in row["handoffs"]]
    assert {handoff["outcome"] for handoff in handoffs} == {"released"} and {h["cause"] for h in handoffs} == {
        "b joined with 1 flow"
    }
    facts = {fact["seq"]: fact for fact in served.found("/api/groups/g/history", limit=200)["facts"]}
    for row in found["rows"]:
        assert [facts[bar["fact"]]["flow"] for bar in row["bars"]] == [bar["flow"] for bar in row["bars"]]
    second.leave()
    again = bars(served.found("/api/groups/g/timeline"))
    assert all(again[number][1][0] == "b/0" and again[number][1][2] for number in moved)


def test_a_picture_that_begins_later(
    served: Served, store: str, first: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owned a partition before the first fact of the picture is told by that fact, or by the state if there is none."""
    second = Lasting(store, "b")
    first.release()
    whole = bars(served.found("/api/groups/g/timeline"))
    second.leave()
    page = served.found("/api/groups/g/history", kind="MemberLeft")
    monkeypatch.setattr("spark_partq.console.timeline.MOST_FACTS", page["end"] - page["facts"][0]["seq"])
    found = served.found("/api/groups/g/timeline")
    assert not found["whole"] and found["partitions"] == 4
    for number, told in bars(found).items():
        assert told[0][0] == whole[number][-1][0], number
    later = bars(served.found("/api/groups/g/timeline", moved=""))
    assert set(later) == {number for number, told in whole.items() if told[-1][0] == "b/0"}
    assert served.found("/api/groups/g/timeline", first=3)["rows"][0]["partition"] == 3
