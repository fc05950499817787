"""A queue's control table: decisions by compare-and-set, and what a refresh of it costs."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.records import KEPT_MS
from spark_partq.storage.log import Conflict
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.procedures.ingress import set_ingress
from spark_partq.storage.queue.control import MERGE_AFTER, QueueControl, open_control
from spark_partq.storage.rows import RowFiles
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.helpers import in_parallel, opened
from tests.scaled import make

OFF, ON = QueueFact("IngressDisabled", {}), QueueFact("IngressEnabled", {})


@pytest.fixture
def control(store: str) -> QueueControl:
    make(store, 1)
    return open_control(Store.at(store), "q")


def toggle(store: str, times: int) -> None:
    queue = opened(store)
    for _ in range(times):
        set_ingress(queue, not queue.state.ingress)


def test_a_hundred_facts_cost_no_more_than_few(
    store: str, control: QueueControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3: of a queue whose ingress was toggled for years few little files are read, and of them each once."""
    toggle(store, 98)
    control.refresh()
    read: list[str] = []
    original = RowFiles.read

    def counted(self: RowFiles, path: str, version: int, most: int) -> Any:
        read.append(path)
        return original(self, path, version, most)

    monkeypatch.setattr(RowFiles, "read", counted)
    queue = opened(store)
    assert queue.state.revision == 100 and len(read) <= MERGE_AFTER
    read.clear()
    queue.control.refresh()
    assert read == []
    set_ingress(queue, not queue.state.ingress)
    control.refresh()
    assert len(read) == 1  # the one that is new, by the one that did not write it
    assert [row["seq"] for row in control.history()] == list(range(101))
    assert control.history()[0]["kind"] == "QueueCreated"


def test_of_several_decisions_each_rests_on_the_one_before(store: str, control: QueueControl) -> None:
    """Nobody's decision is lost, and none is made on an old state."""

    def other() -> list[bool]:
        mine, seen = open_control(Store.at(store), "q"), []
        for _ in range(10):
            state = mine.decide(lambda state: [OFF if state.ingress else ON])
            seen.append(state.ingress)
        return seen

    found = in_parallel([other] * 3)
    assert [f for f in found if isinstance(f, BaseException)] == []
    kinds = [row["kind"] for row in control.history()][2:]
    assert kinds == ["IngressDisabled", "IngressEnabled"] * 15


def test_an_old_look_loses(store: str, control: QueueControl) -> None:
    """It is a conflict, and the table is as it was."""
    assert control.state.ingress
    open_control(Store.at(store), "q").decide(lambda _: [OFF])
    with pytest.raises(Conflict):
        control.commit([OFF])
    with pytest.raises(ValueError, match="ScalingEnded cannot follow"):
        control.commit([QueueFact("ScalingEnded", {})])
    assert [row["kind"] for row in control.history()][2:] == ["IngressDisabled"]


@pytest.mark.parametrize(
    ("kind", "body"), [("ScalingEnded", "{}"), ("GenerationOpened", "{}"), ("IngressDisabled", "{"), ("Nonsense", "{}")]
)
def test_facts_that_cannot_be(control: QueueControl, kind: str, body: str) -> None:
    """A table that was edited is refused, and the queue and the store are named."""
    open_control(control.store, "q")._rows.append(
        [{"seq": 2, "kind": kind, "body": body, "by": "", "at": control.store.now()}]
    )
    with pytest.raises(partq.CorruptTableError, match=r"queue 'q' in .* holds a fact that cannot be"):
        control.refresh()
    with pytest.raises(partq.CorruptTableError, match="edited"):
        open_control(control.store, "q")


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"retention_ms": "soon"}, "settings: retention_ms"),
        ({"retention_ms": -1, "vacuum_grace_ms": 1}, "settings: retention_ms.*vacuum_grace_ms"),
        (None, "settings is no object"),
    ],
)
def test_settings_that_cannot_be(control: QueueControl, settings: Any, wrong: str) -> None:
    """A table is damaged, and not the user's argument wrong; the table, its version and the field are named."""
    rows = [{**row, "body": json.loads(row["body"])} for row in control.history()]
    rows[0]["body"]["settings"] = settings
    control._rows.append([{**row, "body": json.dumps(row["body"])} for row in rows], replace=True)
    told = rf"the control table of queue 'q' in .*, version 2, holds a fact .*\(number 0, QueueCreated: .*{wrong}"
    for read in (control.reopen, lambda: open_control(control.store, "q")):
        with pytest.raises(partq.CorruptTableError, match=told):
            read()


def test_a_field_that_is_missing(control: QueueControl) -> None:
    row = {"seq": 2, "kind": "ScalingStarted", "body": "{}", "by": "", "at": control.store.now()}
    open_control(control.store, "q")._rows.append([row])
    with pytest.raises(
        partq.CorruptTableError,
        match=r"version 2, .*\(number 2, ScalingStarted: fact ScalingStarted has no partitions\)",
    ):
        control.refresh()


def test_discarded_counts_are_kept_apart_from_facts(store: str, control: QueueControl) -> None:
    """S3: they change no state, and outlive the merging of the facts."""
    control.discard(5, ("s", 0))
    control.discard(5, ("s", 0))
    control.discard(2, None)
    control.refresh()
    assert control.discarded == 7 and control.state.revision == 2
    toggle(store, MERGE_AFTER + 5)
    control.refresh()
    assert control.discarded == 7
    assert partq.describe_queue(store, "q").discarded == 7
    found = in_parallel([lambda: open_control(Store.at(store), "q").discard(1, None) for _ in range(5)])
    assert found == [None] * 5
    control.refresh()
    assert control.discarded == 12


def test_who_discarded_long_ago_is_forgotten(
    store: str, control: QueueControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3: else the table would keep each sink that it ever had; the count stays."""
    control.discard(5, ("dead", 0))
    later = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=KEPT_MS + 1)
    monkeypatch.setattr(LogFolder, "store_ms", lambda _: int(1000 * later.timestamp()))
    with wall_clock(later):
        control.discard(1, ("alive", 0))
        control._rows._log.checkpoint()
        found = open_control(Store.at(store), "q")
    assert (found.last_discarded("dead"), found.last_discarded("alive"), found.discarded) == (-1, 0, 6)
