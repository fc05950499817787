"""What is served is what the commands say: groups, clients, partitions, queues, explanations and the history (K8, R7)."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.console import history, looks
from spark_partq.console.looks import Looks
from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.console.served import Served, console
from tests.groups import Consumer, Lasting
from tests.helpers import ROOT, put


def without_clock(found: dict[str, Any]) -> dict[str, Any]:
    """A group without the ages, which go on."""
    for member in found["members"]:
        del member["heartbeat_age_s"]
    return found


def assert_as_described(served: Served, store: str) -> None:
    in_short = served.found("/api/store")
    assert in_short["error"] is None and not in_short["failed"]
    assert [queue["name"] for queue in in_short["queues"]] == partq.list_queues(store)
    assert [group["name"] for group in in_short["groups"]] == partq.list_groups(store)
    for queue in in_short["queues"]:
        found = partq.describe_queue(store, queue["name"])
        assert served.found(f"/api/queues/{queue['name']}")["description"] == found.to_dict()
        for name in ("status", "configured_partitions", "operating_partitions", "ingress", "depth", "stuck"):
            assert queue[name] == getattr(found, name)
        assert queue["groups"] == list(found.groups)
    for group in in_short["groups"]:
        described = partq.describe_group(store, group["name"])
        answer = served.found(f"/api/groups/{group['name']}")
        assert without_clock(answer["description"]) == without_clock(described.to_dict())
        for name in ("state", "status", "trigger", "assignor", "protocol", "lag", "unassigned"):
            assert group[name] == getattr(described, name)
        assert (group["members"], group["partitions"]) == (len(described.members), len(described.partitions))
        for name in ("oldest_s", "in_per_s", "out_per_s"):
            assert len(answer[name]) == len(described.partitions)


def explanation(store: str, partition: int) -> dict[str, Any]:
    found = partq.explain(store, "q", partition, "g").to_dict()
    for wait in found["waits"]:
        del wait["seconds_left"], wait["text"]
    return found


def assert_explained(served: Served, store: str) -> None:
    for number in range(4):
        answer = served.found("/api/groups/g/explain", partition=f"q/{number}")
        for wait in answer["explanation"]["waits"]:
            del wait["seconds_left"], wait["text"]
        assert (answer["explanation"], answer["steps_before"]) == (explanation(store, number), 0)


def test_as_the_commands_say(served: Served, store: str, first: Consumer) -> None:
    """Also while clients come and go, a handoff runs, the queue is scaled and its ingress disabled."""
    assert_as_described(served, store)
    assert_explained(served, store)
    second = Lasting(store, "b")
    assert served.found("/api/store")["groups"][0]["handoffs"] == 1
    assert_as_described(served, store)
    assert_explained(served, store)
    first.release()
    partq.scale(store, "q", 6, timeout_s=60)
    partq.set_ingress(store, "q", False)
    assert_as_described(served, store)
    second.leave()
    partq.create_queue(store, "other", "v long", partitions=0)
    Lasting(store, "c", group="late", queues=("other", "q"))
    assert_as_described(served, store)
    assert_explained(served, store)


def test_warnings_and_when_the_status_began(served: Served, store: str, first: Consumer) -> None:
    """Of what went wrong lately the last facts tell, which a look at the whole store does not read."""
    Lasting(store, "b")
    first.ack(1, 2, delivered=9)
    first.force()
    found = served.found("/api/groups/g")["description"]
    assert found["since"] and "were forced" in " ".join(found["warnings"])
    assert found["warnings"] == list(partq.describe_group(store, "g").warnings)


def test_heartbeats(store: str, first: Consumer) -> None:
    first.beat()
    with console(store) as served, wall_clock(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=100)):
        (member,) = served.found("/api/groups/g")["description"]["members"]
        assert 99 < member["heartbeat_age_s"] < 200 and not member["expired"]


def test_a_group_that_was_deleted(served: Served, store: str, first: Consumer) -> None:
    first.leave()
    partq.delete_group(store, "g")
    assert served.found("/api/store")["groups"] == []
    assert served.found("/api/groups/g")["description"]["state"] == "Dead"
    assert served.found("/api/groups/g/history", limit=1)["facts"][0]["kind"] == "GroupDeleted"


@pytest.mark.parametrize("part", ["", "/history", "/timeline"])
def test_a_group_that_is_damaged(served: Served, store: str, first: Consumer, part: str) -> None:
    first.leave()
    newest = max(Path(store, "groups", "g", "control", "_delta_log").glob("*.json"))
    newest.write_text("{}")
    assert served.refused(f"/api/groups/g{part}", 503)["class"] == "CORRUPT_TABLE"
    shutil.rmtree(store)
    assert served.refused(f"/api/groups/g{part}", 503)["class"] == "NOT_A_STORE"


def test_an_empty_store(store: str) -> None:
    Path(store, "queues").mkdir(parents=True)
    with console(store) as served:
        found = served.found("/api/store")
        assert (found["error"], found["queues"], found["groups"]) == (None, [], [])
        assert "its queues: none" in served.refused("/api/queues/q", 404)["message"]


@pytest.mark.parametrize(
    ("path", "asked", "status", "words"),
    [
        ("/api/groups/nobody", {}, 404, "there is no group 'nobody'"),
        ("/api/groups/nobody/history", {}, 404, "there is no group 'nobody'"),
        ("/api/groups/nobody/timeline", {}, 404, "there is no group 'nobody'"),
        ("/api/groups/nobody/timeline", {}, 404, "its groups: g"),
        ("/api/queues/nowhere", {}, 404, "its queues: q"),
        ("/api/queues/..%2f..", {}, 404, "no queue"),
        ("/api/groups/g/history", {"kind": "Nonsense"}, 400, "'Nonsense' is no kind of fact"),
        ("/api/groups/g/history", {"partition": "q/x"}, 400, "neither a number nor QUEUE/NUMBER"),
        ("/api/groups/g/history", {"limit": "201"}, 400, "from 0 to 200"),
        ("/api/groups/g/history", {"before": "-1"}, 400, "no whole number"),
        ("/api/groups/g/explain", {"partition": "3"}, 400, "is not QUEUE/NUMBER"),
        ("/api/groups/g/explain", {"partition": "q/9"}, 400, "it has 0 to 3"),
        ("/api/groups/g/explain", {"partition": "other/0"}, 400, "does not read queue 'other'"),
    ],
)
def test_refused(still: Served, path: str, asked: dict[str, str], status: int, words: str) -> None:
    error = still.refused(path, status, **asked)
    assert words in error["message"] and error["class"] and error["next_step"]


# ---- history
def rows(store: str) -> list[dict[str, Any]]:
    group = Group(Store.at(store), "g")
    group.refresh()
    return [{**row, "at": row["at"].isoformat()} for row in reversed(group.history())]


def pages(served: Served, **asked: Any) -> list[dict[str, Any]]:
    found, before = [], None
    while True:
        page = served.found("/api/groups/g/history", **asked, **({} if before is None else {"before": before}))
        assert len(page["facts"]) <= asked["limit"]
        found += page["facts"]
        before = page["older"]
        if before is None:
            return found


def test_history(served: Served, store: str, first: Consumer) -> None:
    """Page by page it is the whole history; and each filter leaves what it says."""
    Lasting(store, "b")
    first.release()
    every = rows(store)
    assert pages(served, limit=4) == every
    granted = [fact for fact in every if fact["kind"] == "Granted"]
    assert granted and pages(served, limit=4, kind="Granted") == granted
    both = [fact for fact in every if fact["kind"] in ("Granted", "Released")]
    assert pages(served, limit=4, kind=["Granted", "Released"]) == both
    assert pages(served, limit=4, partition="q/1") == [fact for fact in every if fact["partition"] == 1]
    assert pages(served, limit=4, partition="1") == pages(served, limit=4, partition="q/1")
    member = pages(served, limit=4, member="b")
    assert {fact["kind"] for fact in member} == {"MemberJoined", "HandoffStarted", "Granted"}
    assert (
        pages(served, limit=4, text="RELEASED it") == [fact for fact in every if "released it" in fact["cause"]] != []
    )


def test_of_many_steps_the_last(served: Served, store: str, first: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_STEPS", 2)
    for n in range(3):
        member = Lasting(store, f"b{n}")
        first.release()
        member.leave()
    moved = next(fact["partition"] for fact in rows(store) if fact["kind"] == "HandoffStarted")
    found = partq.explain(store, "q", moved, "g").to_dict()["steps"]
    answer = served.found("/api/groups/g/explain", partition=f"q/{moved}")
    assert answer["explanation"]["steps"] == found[-2:] and answer["steps_before"] == len(found) - 2 > 0


# ---- numbers from two looks
def test_rates(store: str, first: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages per second between looks, over some seconds; a position that was set back has none."""
    now = [100.0]
    monkeypatch.setattr("spark_partq.storage.runtime.SystemRuntime.monotonic_s", lambda _: now[0])
    watched = Looks(Store(store), 1.0)

    def look(seconds: float) -> None:
        now[0] += seconds
        watched.refresh()

    look(0)
    assert watched.rates.of(("q", 0)) is None
    put(store, 0, range(20))
    first.ack(0, 7)
    look(4)
    assert (watched.rates.of(("q", 0)), watched.rates.of(("q", 1)), watched.rates.of(("g", "q", 0))) == (5.0, 0.0, 1.0)
    for _ in range(10):
        look(4)
    assert watched.rates.of(("q", 0)) == 0.0
    first.leave()
    partq.reset_offsets(store, "g", "earliest")
    look(4)
    assert watched.rates.of(("g", "q", 0)) is None
    assert watched.trend("group", "g") == [37, 53, *[53] * 10, 60]


def test_a_trend_is_of_the_last_looks(store: str, first: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "TREND", 3)
    monkeypatch.setattr(looks, "_LONG_S", float("inf"))
    watched = Looks(Store(store), 0.0)
    for _ in range(5):
        watched.refresh()
    assert watched.trend("queue", "q") == [37] * 3
    first.leave()
    partq.delete_group(store, "g")
    partq.delete_queue(store, "q")
    Path(store, "queues").mkdir(exist_ok=True)
    watched.refresh()
    assert watched.trend("queue", "q") == watched.trend("group", "g") == []


# ---- what everybody may write
def test_hostile_texts_are_texts(served: Served, store: str) -> None:
    """A member can say of itself what it likes; that is sent as JSON and nothing else."""
    text = '<img src=x onerror="alert(1)">\x1b[31m\u202e</script>'
    Lasting(store, "evil", application=text, executors=(text,))
    answer = served.get("/api/groups/g")
    assert (
        answer.headers["content-type"] == "application/json" and answer.headers["x-content-type-options"] == "nosniff"
    )
    assert answer.json["description"]["members"][1]["application"] == text
    assert (
        text
        in json.loads(served.found("/api/groups/g/history", kind="MemberJoined", limit=1)["facts"][0]["body"]).values()
    )


def test_the_document_names_what_is_asked_for() -> None:
    """docs/console.md lists each address of the console that answers with JSON."""
    told = (ROOT / "docs" / "console.md").read_text()
    for path in ("/api/store", "/api/queues/{queue}", "/api/groups/{group}", "/history", "/timeline", "/explain"):
        assert path in told
