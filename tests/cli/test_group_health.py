"""What the commands show of a group that is not well, and how that fits a narrow screen."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import uuid

import pytest
from rich.cells import cell_len
from rich.console import Console

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.fitting import fitted
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import created, queue_of, table_rows
from tests.clocks import wall_clock
from tests.groups import Consumer, Lasting
from tests.helpers import put

DAY = dt.timedelta(days=1)


def tomorrow() -> dt.datetime:
    return dt.datetime.now(dt.UTC) + DAY


# ---- states
def test_a_group_whose_queries_have_died(command: Command, store: str, living: Consumer) -> None:
    """R4: forty seconds after a kill of the only consumer nothing looks healthy, though the control table says Ready."""
    with wall_clock(tomorrow()):
        outcome, as_json = command("describe-group", "g"), command("describe-group", "g", "--json")
        listed = command("list")
    assert (outcome.code, as_json.code, listed.code) == (1, 1, 0)
    assert re.search("^state +Expired", outcome.out, re.MULTILINE)
    assert "Ready since" in outcome.out
    assert re.fullmatch(r"86,\d{3}\.\d s, expired", table_rows(outcome.out)[0][4])
    assert [row[1] for row in table_rows(outcome.out)[1:3]] == ["expired", "expired"]
    assert (
        "warning: the session of query a (silent for 86," in outcome.out and "its messages are not read" in outcome.out
    )
    found = json.loads(as_json.out)
    assert (found["state"], found["status"], found["members"][0]["expired"]) == ("Expired", "Ready", True)
    assert ["g", "Expired", "1", "1"] in table_rows(listed.out)


def test_an_abandoned_group(command: Command, store: str, living: Consumer) -> None:
    living.leave()
    assert re.search("^state +Empty", command("describe-group", "g").out, re.MULTILINE)
    assert ["g", "Empty", "0", "0"] in table_rows(command("list").out)
    assert json.loads(command("list", "--json").out)["group_states"] == {"g": "Empty"}


def test_a_deleted_group(command: Command, store: str, living: Consumer) -> None:
    """It is not listed. Its history stays, and describe-group says when it was deleted, with exit code 1."""
    living.leave()
    assert command("delete-group", "g", "--yes").code == 0
    outcome = command("describe-group", "g")
    assert outcome.code == 1 and "Dead since" in outcome.out and "the group was deleted by" in outcome.out
    assert "spark-partq history g" in " ".join(outcome.out.split())
    assert json.loads(command("describe-group", "g", "--json").out)["state"] == "Dead"
    assert command("list", "--json").out.count('"g"') == 0
    told = command("history", "g")
    assert told.code == 0 and "GroupDeleted" in told.out.splitlines()[-1]
    assert json.loads(command("history", "g", "--json", "--last", "1").out)[0]["kind"] == "GroupDeleted"
    assert_refused(command("delete-group", "g", "--yes"), "GROUP_NOT_FOUND", "'g'")


def test_held_keys(command: Command, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    created(store)
    Lasting(store, "a")
    found = dataclasses.replace(partq.describe_group(store, "g"), held_keys={"q": 1_234, "r": 1})
    monkeypatch.setattr(partq, "describe_group", lambda *_, **__: found)
    assert "1,234 of q, 1 of r" in command("describe-group", "g").out


# ---- 80 columns
@pytest.mark.parametrize("columns", ["80", "100", "240"])
def test_no_name_is_cut(command: Command, store: str, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """Queries that name no instance have a UUID for one; hosts have long names, too."""
    monkeypatch.setenv("COLUMNS", columns)
    partq.create_queue(store, "customer-orders.eu-central-1", "v long", partitions=3, rebalance_delay_ms=0)
    for number in range(3):
        put(store, number, range(7), queue="customer-orders.eu-central-1")
    names = [str(uuid.UUID(int=n * 0x1234567890ABCDEF1234567890)) for n in (1, 2)]
    options = {"queues": ("customer-orders.eu-central-1",), "application": "application_1700000000000_0042"}
    for name in names:
        Lasting(store, name, executors=("1@worker-17.compute.internal.example.org",), **options)
    outcome = command("describe-group", "g")
    words = outcome.out.replace(",", " ").replace(":", " ").split()
    for name in names:
        assert name in words and f"{name}/0" in words and f"host-{name}" in words
    for whole in (
        "customer-orders.eu-central-1",
        "1@worker-17.compute.internal.example.org",
        "application_1700000000000_0042",
    ):
        assert whole in words
    assert max(cell_len(line) for line in outcome.out.splitlines()) <= int(columns)
    assert "…" not in outcome.out
    assert f"→ {names[1]}/0" in " ".join(outcome.out.split())


def test_warnings_fit(command: Command, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    queue_of(store, 2, each=3)
    Consumer(store, "a").leave()
    lines = command("describe-group", "g").out.splitlines()
    assert any(line.startswith("warning: no query is in the group") for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("width", range(10, 90, 7))
def test_a_table_is_told_in_lines_where_it_does_not_fit(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the width, every word is there, and no line is longer than the width or its longest word."""
    made = render.table("name", "about", n="right")
    rows = [("a-rather-long-name", "some words, and\nanother line", "1,234"), ("b", "", "5")]
    for row in rows:
        made.add_row(*row)
    console = Console(width=width)
    fits = fitted(made, console)
    if isinstance(fits, list):
        lines = fits
    else:
        with console.capture() as capture:
            console.print(fits)
        lines = capture.get().splitlines()
    text = re.sub(r"[│┃,]", " ", " ".join(lines)).split()
    for word in ("a-rather-long-name", "some", "words", "another", "b", "5"):
        assert word in text
    assert max(map(cell_len, lines)) <= max(width, len("  a-rather-long-name,"))
    assert isinstance(fits, list) == (width < 45)
