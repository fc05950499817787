"""The command that creates a queue, with its settings, and the one that deletes it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.cli import queues
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.storage.files.disk import DiskFiles
from tests.cli.outcome import Command, Outcome, Terminal, assert_refused
from tests.cli.queues import created, read_up_to
from tests.helpers import ROOT


# ---- create-queue
def test_create_queue_with_all_it_takes(command: Command, store: str) -> None:
    made = command(
        *("create-queue", "orders", "--schema", "country string, id long, amount double", "--key", "country, id"),
        *("--partitions", "5", "--retention-ms", "7d", "--rebalance-delay-ms", "250"),
    )
    assert (made.code, made.err) == (0, "")
    assert made.out == (
        "created queue orders, 5 partitions\n"
        "next: write to it with partq.queue_sink, read it with format('partq'), look at it with spark-partq tail orders\n"
    )
    assert command("tail", "orders").code == 0
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


def test_every_setting_of_a_queue_is_an_option(run: Command, command: Command, store: str) -> None:
    told = run("create-queue", "--help").out
    given = {
        "rebalance_delay_ms": ("2s", 2_000), "max_handoff_time_ms": ("1", 1), "retention_ms": ("7d", 604_800_000),
        "min_retention_ms": ("2d", 172_800_000), "max_bytes": ("1000000", 1_000_000),
        "vacuum_grace_ms": ("2h", 7_200_000), "segment_ms": ("1d", 86_400_000), "max_clock_skew_ms": ("1m", 60_000), "durability": ("disk", "disk"), "reject_to_sender": ("off", "off"),
        "max_deliveries": ("5", 5), "message_ttl_ms": ("1h", 3_600_000), "message_ttl_column": ("v", "v"), "expired_messages": ("dead_letter", "dead_letter"),
        "dead_letter_queue": ("dead", "dead"), "dead_letter_order": ("hold", "hold"),
    }  # fmt: skip
    arguments: list[str] = []
    for name in QueueSettings.model_fields:
        flag = f"--{name.replace('_', '-')}"
        assert f"{flag} " in told
        arguments += [flag, given[name][0]]
    assert command("create-queue", "q", "--schema", "v long", "--key", "v", *arguments).code == 0
    assert partq.describe_queue(store, "q").settings == {name: value for name, (_, value) in given.items()}


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


def test_a_setting_that_may_be_none(command: Command, store: str, tmp_path: Path) -> None:
    file = tmp_path / "queue.toml"
    file.write_text('segment_ms = "none"\nretention_ms = "none"\n')
    assert command("create-queue", "a", "--schema", "v long", "--settings", str(file)).code == 0
    assert command("create-queue", "b", "--schema", "v long", "--segment-ms", "none").code == 0
    assert [partq.describe_queue(store, name).settings["segment_ms"] for name in "ab"] == [None, None]
    assert command("create-queue", "c", "--schema", "v long", "--vacuum-grace-ms", "none").code == 1


def test_a_name_of_digits_is_a_name(command: Command, store: str) -> None:
    arguments = "--max-deliveries", "3", "--dead-letter-queue", "2026", "--message-ttl-column", "7"
    assert command("create-queue", "q", "--schema", "v long, `7` long", *arguments).code == 0
    settings = partq.describe_queue(store, "q").settings
    assert [settings[n] for n in ("max_deliveries", "dead_letter_queue", "message_ttl_column")] == [3, "2026", "7"]
    assert command("alter-queue", "q", "--set", "dead_letter_queue=2027").code == 0
    assert partq.describe_queue(store, "q").settings["dead_letter_queue"] == "2027"


def test_the_example_of_settings_holds_the_defaults(command: Command, store: str) -> None:
    example = str(ROOT / "conf" / "queue.example.toml")
    assert command("create-queue", "q", "--schema", "v long", "--settings", example).code == 0
    assert partq.describe_queue(store, "q").settings == QueueSettings().model_dump()


def test_the_example_of_settings_names_each_setting() -> None:
    text = (ROOT / "conf" / "queue.example.toml").read_text()
    for name in QueueSettings.model_fields:
        assert f"{name} = " in text


def test_the_document_of_options_names_each_setting_with_its_default() -> None:
    text = (ROOT / "docs" / "options.md").read_text()
    for name, value in QueueSettings().model_dump().items():
        assert (
            f"| `{name}` | {'none' if value is None else f'`{value}`' if isinstance(value, str) else value} | " in text
        )


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
        (["--schema", "v long", "--partitions", "-1"], "partitions"),
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
def test_delete_queue_asks(
    command: Command, store: str, monkeypatch: pytest.MonkeyPatch, answer: str, deleted: bool
) -> None:
    """Whoever does not answer at all, with Ctrl-D, is told the same as one who says no."""
    created(store)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    done = command("delete-queue", "q")
    assert done.err.startswith("Delete queue q and all of its messages? [y/N]:")
    assert done.code == (0 if deleted else 1)
    assert deleted or done.err.endswith(
        "error: [INVALID_ARGUMENT] queue 'q' was not deleted: not confirmed (--yes does not ask)\n"
    )
    assert partq.list_queues(store) == ([] if deleted else ["q"])


@pytest.mark.parametrize("sent", ["", "y\n"])
@pytest.mark.parametrize("line", ["delete-queue q", "delete-messages q --key k=a"])
def test_without_a_terminal_nobody_is_asked(store: str, line: str, sent: str) -> None:
    """One line, as of everything that is refused."""
    partq.create_queue(store, "q", "k string", key="k", partitions=1)
    done = subprocess.run(
        [sys.executable, "-c", "from spark_partq.cli import main; main()", "--store", store, *line.split()],
        input=sent,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert_refused(Outcome(done.returncode, done.stdout, done.stderr), "INVALID_ARGUMENT", "'q'", "--yes does not ask")
    assert partq.list_queues(store) == ["q"]


def test_delete_queue_tells_what_stays(command: Command, store: str) -> None:
    """Its groups with their positions, and its dead-message queue: both can be deleted with what it says."""
    created(store, dead_letter_queue="dead")
    read_up_to(store, "readers", 0, 0)
    first, groups, dead = command("delete-queue", "q", "--yes").out.splitlines()
    assert first == "deleted queue q"
    assert "(readers): spark-partq delete-group " in groups and dead.endswith(": spark-partq delete-queue dead")
    assert command("delete-queue", "dead", "--yes").code == command("delete-group", "readers", "--yes").code == 0


def test_delete_queue_that_is_half_deleted(command: Command, store: str) -> None:
    """Wherever it was killed: what the error advises can be done."""
    delete = DiskFiles.delete
    for last in range(40):
        created(store)
        left = itertools.count()

        def dies(files: DiskFiles, path: str, left: Iterator[int] = left, last: int = last) -> None:
            if next(left) == last:
                raise KeyboardInterrupt
            delete(files, path)

        with mock.patch.object(DiskFiles, "delete", dies), contextlib.suppress(KeyboardInterrupt):
            partq.delete_queue(store, "q")
            return
        done = command("delete-queue", "q", "--yes")
        assert done.code == 0 or "QUEUE_NOT_FOUND" in done.err, (last, done.err)
        assert partq.list_queues(store) == []
    raise AssertionError("a deletion deletes so many files")


def test_a_group_may_have_read_what_cannot_be_read(command: Command, store: str) -> None:
    """Nobody shall delete it because of that."""
    created(store)
    partq.create_queue(store, "other", "v long", partitions=1)
    read_up_to(store, "readers", 0, 0)
    for file in Path(store, "queues/q/control").glob("*.parquet"):
        file.write_bytes(b"no file of Parquet")
    listed = command("list")
    assert "CORRUPT_TABLE" in listed.out and "readers" in listed.out and "have read none" not in listed.out


def test_what_is_logged_is_plain(command: Command, store: str) -> None:
    """A terminal obeys no escape sequence of what a store says."""
    created(store)

    def logs(*_: object) -> None:
        logging.getLogger("spark_partq.x").warning("a\x1b[2Jb")
        raise partq.InvalidArgumentError("no list")

    with mock.patch.object(queues, "_listing", logs):
        told = command("list")
    assert "a\\x1b[2Jb" in told.err and "\x1b" not in told.err


def test_delete_queue_that_does_not_exist_is_refused_unasked(command: Command, store: str) -> None:
    created(store)
    assert_refused(command("delete-queue", "other"), "QUEUE_NOT_FOUND", "'other'", "q")


def test_a_queue_that_may_be_there(command: Command, store: str) -> None:
    """A schedule or a script runs it again and again."""
    arguments = ("create-queue", "q", "--schema", "k string, v long", "--key", "k", "--partitions", "3", "--exist-ok")
    assert command(*arguments, "--retention-ms", "7d").out.startswith("created queue q, 3 partitions\n")
    before = partq.describe_queue(store, "q")
    again = command(*arguments, "--retention-ms", "7d")
    assert (again.code, again.out) == (0, "there already is queue q, 3 partitions\n")
    assert partq.describe_queue(store, "q") == before
    assert_refused(command(*arguments), "QUEUE_ALREADY_EXISTS", "its retention_ms is 604800000, not none")
