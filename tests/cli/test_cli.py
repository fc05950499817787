"""The command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq import cli
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.queue.facts import QueueFact
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import created, read_up_to
from tests.groups import Consumer
from tests.helpers import opened, put


# ---- stores and queues
def test_list(command: Command, store: str) -> None:
    created(store)
    partq.create_queue(store, "empty", "v long", partitions=1)
    put(store, 1, range(7))
    Consumer(store, "i", group="readers", session_timeout_ms=600_000).ack(1, 3)
    told = json.loads(command("list", "--json").out)
    usual = {"status": "Ready", "role": "primary", "ingress": True, "waiting": {}}
    assert told == {
        "queues": [
            {"name": "empty", **usual, "partitions": 1, "configured_partitions": 1, "depth": 0, "groups": []},
            {"name": "q", **usual, "partitions": 2, "configured_partitions": 2, "depth": 4, "groups": ["readers"]},
        ],
        "groups": ["readers"],
        "group_states": {"readers": "Ready"},
    }
    rows = [line.split("│")[1:-1] for line in command("list").out.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["empty", "Ready", "1", "enabled", "0", ""],
        ["q", "Ready", "2", "enabled", "4", "readers"],
        ["readers", "Ready", "1", "0"],
    ]


def test_list_shows_a_queue_whose_deletion_was_interrupted(command: Command, store: str) -> None:
    created(store)
    opened(store).control.decide(lambda _: [QueueFact("QueueDeleted", {})])
    assert json.loads(command("list", "--json").out)["queues"] == [{"name": "q", "status": "Deleting"}]
    assert "Deleting" in command("list").out
    assert_refused(command("describe-queue", "q"), "QUEUE_NOT_READY", "Deleting")
    assert command("delete-queue", "q", "--yes").code == 0
    assert partq.list_queues(store) == []


def test_list_shows_the_groups_of_deleted_queues(command: Command, store: str) -> None:
    created(store)
    read_up_to(store, "orphans", 0, 0)
    partq.delete_queue(store, "q")
    assert "orphans" in command("list").out


def test_describe_queue(command: Command, store: str) -> None:
    created(store)
    put(store, 0, range(5))
    put(store, 0, range(2500))
    assert json.loads(command("describe-queue", "q", "--json").out) == partq.describe_queue(store, "q").to_dict()
    told = command("describe-queue", "q").out
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in told.splitlines() if line.startswith("│")]
    assert [row[:5] for row in rows] == [
        ["0", "0", "2,505", "2,505", "2"],
        ["1", "0", "0", "0", "0"],
        ["all", "", "", "2,505", "2"],
    ]
    assert rows[0][5].endswith("KiB")
    for word in ("v:long", "2 configured, 2 operating", "rebalance_delay_ms", "5,000", "Ready"):
        assert word in told or word.replace("long", "bigint") in told


@pytest.mark.parametrize("arguments", [["describe-queue", "q"], ["maintain", "q"], ["delete-queue", "q"], ["scale", "q", "3"], ["ingress", "enable", "q"], ["copy-stuck", "q"]])  # fmt: skip
def test_an_unknown_queue_is_refused(command: Command, store: str, arguments: list[str]) -> None:
    partq.create_queue(store, "there", "v long")
    assert_refused(command(*arguments), "QUEUE_NOT_FOUND", "'q'", "there", store)


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["describe-queue", "q"],
        ["scale", "q", "3"],
        ["ingress", "disable", "q"],
        ["copy-stuck", "q"],
        ["maintain"],
        ["delete-group", "g", "--yes"],
        ["describe-group", "g"],
        ["history", "g"],
        ["rebalance"],
        ["doctor"],
    ],
)
def test_something_else_than_a_store_is_refused(command: Command, store: str, arguments: list[str]) -> None:
    assert_refused(command(*arguments), "NOT_A_STORE", store)
    assert not Path(store).exists()


def test_maintain_removes_what_was_read(command: Command, store: str) -> None:
    partq.create_queue(store, "q", "v long", partitions=1)
    put(store, 0, range(5))
    put(store, 0, range(3))
    read_up_to(store, "readers", 0, 6)
    told = json.loads(command("maintain", "--json").out)
    assert told == [
        {"queue": "q", "removed_messages": 5, "vacuumed_files": 0, "merged_files": 0, "waiting_for": ["readers"]}
    ]
    assert partq.describe_queue(store, "q").partitions[0].first_offset == 5
    row = next(line for line in command("maintain", "q").out.splitlines() if line.startswith("│"))
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["q", "0", "0", "0", "readers"]


def test_doctor(command: Command, store: str, group: Consumer) -> None:
    """A store in order is exit code 0, a damaged one 1 with what is wrong and what to do."""
    good = command("doctor")
    assert (good.code, good.err) == (0, "")
    assert good.out == "checked 1 queue (4 partitions, 40 messages) and 1 group (14 facts): 0 faults, 0 warnings\n"
    assert json.loads(command("doctor", "--group", "g", "--json").out)["healthy"] is True
    (file,) = Path(store, "groups/g/control").glob("*.parquet")
    file.unlink()
    bad = command("doctor")
    assert (bad.code, bad.err) == (1, "")
    assert bad.out.startswith("fault: group g: ") and file.name in bad.out and "restore" in bad.out
    told = command("doctor", "--json")
    assert told.code == 1
    found = json.loads(told.out)
    assert found["healthy"] is False and found["findings"][0]["about"] == "group g"
    for arguments in (["describe-group", "g"], ["history", "g"]):
        assert_refused(command(*arguments), "CORRUPT_TABLE", "'g'")
    listed = command("list")
    assert listed.code == 0 and listed.err.startswith("warning: [CORRUPT_TABLE] ") and listed.err.count("'g'") == 1


# ---- usage
@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["create-queue", "q"],
        ["create-queue", "q", "--schema", "v long", "--partitions", "many"],
        ["list", "--no-such-option"],
        ["--storage-option", "novalue", "list"],
    ],
)
def test_wrong_usage(command: Command, arguments: list[str]) -> None:
    told = command(*arguments)
    assert told.code == 2
    assert "Usage:" in told.err
    assert "Traceback" not in told.err


def test_a_command_without_a_store_is_wrong_usage(run: Command) -> None:
    told = run("list")
    assert told.code == 2
    assert "SPARK_PARTQ_STORE" in told.err


def test_the_store_of_the_environment(run: Command, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    created(store)
    monkeypatch.setenv("SPARK_PARTQ_STORE", store)
    assert [q["name"] for q in json.loads(run("list", "--json").out)["queues"]] == ["q"]


def test_storage_options_reach_the_store(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        partq, "list_queues", lambda store, storage_options: seen.append((store, storage_options)) or []
    )
    monkeypatch.setattr(partq, "list_groups", lambda store, storage_options: [])
    assert run("--store", "s3://b/s", "--storage-option", "a=1", "--storage-option", "b=x=y", "list").code == 0
    assert seen == [("s3://b/s", {"a": "1", "b": "x=y"})]


def test_the_installed_command() -> None:
    told = subprocess.run(
        [str(Path(sys.executable).parent / "spark-partq"), "--help"], capture_output=True, text=True, check=True
    )
    names = "create-queue delete-queue list describe-queue scale ingress copy-stuck describe-group history rebalance doctor delete-group maintain demo"
    for command in names.split():
        assert f" {command} " in told.stdout


@pytest.mark.parametrize(
    ("value", "milliseconds"), [("0", 0), (7, 7), ("250ms", 250), ("5s", 5_000), ("10 m", 600_000), ("12h", 43_200_000)]
)
def test_durations(value: object, milliseconds: int) -> None:
    assert cli.duration_ms(value) == milliseconds


@pytest.mark.parametrize("value", ["", "d", "-1s", "1.5h", "7w", "1d2h", True, None, 1.5, [1]])
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(InvalidArgumentError):
        cli.duration_ms(value)
