"""The command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq import cli
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.settings import QueueSettings
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import ROOT, put


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process: run(*arguments) -> Outcome."""
    monkeypatch.delenv("SPARK_PARTQ_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["spark-partq", *arguments])
        code: object = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
        assert isinstance(code, int)
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def command(run: Command, store: str) -> Command:
    """The same, about the store of the test."""
    return lambda *arguments: run("--store", store, *arguments)


def assert_refused(outcome: Outcome, error_class: str, *words: str) -> None:
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith(f"error: [{error_class}] ")
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err


def created(store: str, **settings: Any) -> None:
    partq.create_queue(store, "q", "v long", partitions=2, **settings)


# ---- create-queue
def test_create_queue_with_all_it_takes(command: Command, store: str) -> None:
    made = command(
        *("create-queue", "orders", "--schema", "country string, id long, amount double", "--key", "country, id"),
        *("--partitions", "5", "--retention-ms", "7d", "--rebalance-delay-ms", "250"),
    )
    assert (made.code, made.out, made.err) == (0, "created queue orders with 5 partitions\n", "")
    found = partq.describe_queue(store, "orders")
    assert found.operating_partitions == 5
    assert found.key == ("country", "id")
    assert found.settings["retention_ms"] == 7 * 86_400_000
    assert found.settings["rebalance_delay_ms"] == 250
    assert found.settings["max_handoff_time_ms"] == QueueSettings().max_handoff_time_ms


def test_create_queue_without_key_or_options(command: Command, store: str) -> None:
    assert command("create-queue", "events", "--schema", "body string").code == 0
    found = partq.describe_queue(store, "events")
    assert found.key == ()
    assert found.settings == QueueSettings().model_dump()


def test_every_setting_of_a_queue_is_an_option(run: Command) -> None:
    told = run("create-queue", "--help").out
    for name in QueueSettings.model_fields:
        assert f"--{name.replace('_', '-')} " in told


def test_settings_from_a_file_and_an_option_over_them(command: Command, store: str, tmp_path: Path) -> None:
    file = tmp_path / "queue.toml"
    file.write_text('retention_ms = "12h"\nrebalance_delay_ms = 1\nmax_handoff_time_ms = 2\n')
    assert (
        command("create-queue", "q", "--schema", "v long", "--settings", str(file), "--rebalance-delay-ms", "9s").code
        == 0
    )
    settings = partq.describe_queue(store, "q").settings
    assert settings["retention_ms"] == 12 * 3_600_000
    assert settings["rebalance_delay_ms"] == 9_000
    assert settings["max_handoff_time_ms"] == 2


def test_the_example_of_settings_holds_the_defaults(command: Command, store: str) -> None:
    example = str(ROOT / "conf" / "queue.example.toml")
    assert command("create-queue", "q", "--schema", "v long", "--settings", example).code == 0
    assert partq.describe_queue(store, "q").settings == QueueSettings().model_dump()


def test_the_example_of_settings_names_each_setting() -> None:
    text = (ROOT / "conf" / "queue.example.toml").read_text()
    for name in QueueSettings.model_fields:
        assert f"{name} = " in text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("retention_ms = '7 weeks'", "7 weeks"),
        ("retention_ms = true", "True"),
        ("no_such_setting = 1", "no_such_setting"),
        ("retention_ms = ", "queue.toml"),
    ],
)
def test_a_wrong_settings_file_is_refused(command: Command, tmp_path: Path, store: str, text: str, word: str) -> None:
    file = tmp_path / "queue.toml"
    file.write_text(text)
    refused = command("create-queue", "q", "--schema", "v long", "--settings", str(file))
    assert_refused(refused, "INVALID_ARGUMENT", word)
    assert not Path(store).exists()


def test_a_missing_settings_file_is_refused(command: Command, tmp_path: Path) -> None:
    missing = str(tmp_path / "none.toml")
    assert_refused(
        command("create-queue", "q", "--schema", "v long", "--settings", missing), "INVALID_ARGUMENT", missing
    )


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--schema", "v long", "--key", "nope"], "nope"),
        (["--schema", "v long", "--partitions", "0"], "partitions"),
        (["--schema", "v wrong"], "wrong"),
        (["--schema", "v long", "--retention-ms", "soon"], "soon"),
    ],
)
def test_a_wrong_queue_is_refused(command: Command, store: str, arguments: list[str], word: str) -> None:
    assert_refused(command("create-queue", "q", *arguments), "INVALID_ARGUMENT", word)
    assert not Path(store).exists()


def test_a_queue_that_exists_is_refused(command: Command, store: str) -> None:
    created(store)
    refused = command("create-queue", "q", "--schema", "v long")
    assert_refused(refused, "QUEUE_ALREADY_EXISTS", "'q'", store)


# ---- delete-queue
def test_delete_queue_without_asking(command: Command, store: str) -> None:
    created(store)
    assert command("delete-queue", "q", "--yes").out == "deleted queue q\n"
    assert partq.list_queues(store) == []


@pytest.mark.parametrize(("answer", "deleted"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_delete_queue_asks(store: str, answer: str, deleted: bool) -> None:
    created(store)
    done = subprocess.run(
        [sys.executable, "-c", "from spark_partq.cli import main; main()", "--store", store, "delete-queue", "q"],
        input=answer,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == (0 if deleted else 1)
    assert partq.list_queues(store) == ([] if deleted else ["q"])
    assert "Traceback" not in done.stderr


def test_delete_queue_that_does_not_exist_is_refused_unasked(command: Command, store: str) -> None:
    created(store)
    assert_refused(command("delete-queue", "other"), "QUEUE_NOT_FOUND", "'other'", "q")


# ---- reading commands
def test_list(command: Command, store: str) -> None:
    created(store)
    partq.create_queue(store, "empty", "v long", partitions=1)
    put(store, 1, range(7))
    read_up_to(store, "readers", 1, 3)
    told = json.loads(command("list", "--json").out)
    assert told == {
        "queues": [
            {"name": "empty", "status": "Ready", "partitions": 1, "depth": 0, "groups": []},
            {"name": "q", "status": "Ready", "partitions": 2, "depth": 4, "groups": ["readers"]},
        ],
        "groups": ["readers"],
    }
    rows = [line.split("│")[1:-1] for line in command("list").out.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["empty", "Ready", "1", "0", ""],
        ["q", "Ready", "2", "4", "readers"],
    ]


def test_list_shows_a_queue_whose_deletion_was_interrupted(command: Command, store: str) -> None:
    from spark_partq.core.queue import QueueFact
    from spark_partq.storage import queues

    created(store)
    control = queues._control(Store.at(store), "q")
    control.refresh()
    control.append([queues._row(QueueFact("QueueDeleted", {}), len(control.rows()))])
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
    for word in ("v:long", "2 of 2 partitions", "rebalance_delay_ms", "5,000", "Ready"):
        assert word in told or word.replace("long", "bigint") in told


@pytest.mark.parametrize("arguments", [["describe-queue", "q"], ["maintain", "q"], ["delete-queue", "q"]])
def test_an_unknown_queue_is_refused(command: Command, store: str, arguments: list[str]) -> None:
    partq.create_queue(store, "there", "v long")
    assert_refused(command(*arguments), "QUEUE_NOT_FOUND", "'q'", "there", store)


@pytest.mark.parametrize("arguments", [["list"], ["describe-queue", "q"], ["maintain"], ["delete-group", "g"]])
def test_something_else_than_a_store_is_refused(command: Command, store: str, arguments: list[str]) -> None:
    assert_refused(command(*arguments), "NOT_A_STORE", store)
    assert not Path(store).exists()


# ---- groups and maintenance
def read_up_to(store: str, group: str, partition: int, offset: int) -> None:
    """Let the group have acknowledged a partition up to the offset."""
    Consumer(store, "i", group=group).ack(partition, offset)


def test_maintain_removes_what_was_read(command: Command, store: str) -> None:
    partq.create_queue(store, "q", "v long", partitions=1)
    put(store, 0, range(5))
    put(store, 0, range(3))
    read_up_to(store, "readers", 0, 6)
    told = json.loads(command("maintain", "--json").out)
    assert told == [{"queue": "q", "removed_messages": 5, "vacuumed_files": 0, "waiting_for": ["readers"]}]
    assert partq.describe_queue(store, "q").partitions[0].first_offset == 5
    row = next(line for line in command("maintain", "q").out.splitlines() if line.startswith("│"))
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["q", "0", "0", "readers"]


def test_delete_group(command: Command, store: str) -> None:
    created(store)
    read_up_to(store, "readers", 0, 0)
    assert command("delete-group", "readers").out == "deleted group readers\n"
    assert partq.list_groups(store) == []
    assert_refused(command("delete-group", "readers"), "GROUP_NOT_FOUND", "'readers'")


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
    for command in ("create-queue", "delete-queue", "list", "describe-queue", "delete-group", "maintain", "demo"):
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
