"""What everybody meets first: the version, help, where --store stands, completion, and what is there already."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import typer

import spark_partq as partq
from spark_partq.cli import app
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import PROGRAM, kinds, queue_of
from tests.helpers import ROOT

COMMAND: Any = typer.main.get_command(app)


def leaves(command: Any = COMMAND, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path


def found(path: tuple[str, ...]) -> Any:
    command = COMMAND
    for name in path:
        command = command.commands[name]
    return command


LEAVES = list(leaves())


def test_version(run: Command) -> None:
    assert run("--version").out == f"spark_partq {partq.__version__}\n"


# ---- where --store stands
def arguments(path: tuple[str, ...]) -> list[str]:
    """What the command must be given; about a queue, group or store that is not there."""
    values = {
        "action": "enable",
        "group": "g",
        "key": "k=v",
        "partition": "0",
        "partitions": "3",
        "schema": "v long",
        "to": "/nowhere/else",
    }
    given: list[str] = []
    for parameter in found(path).params:
        if parameter.param_type_name == "argument" and parameter.required:
            given.append(values.get(parameter.name, "x"))
        elif parameter.required and parameter.name in values:
            given += [parameter.opts[0], values[parameter.name]]
    return given + (["--set", "retention_ms=5"] if path == ("alter-queue",) else [])


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_the_options_of_the_store(path: tuple[str, ...]) -> None:
    options = [name for parameter in found(path).params for name in parameter.opts]
    for name in ("--store", "--storage-option"):
        assert options.count(name) == 1


@pytest.mark.parametrize("path", [path for path in LEAVES if path != ("demo",)], ids=" ".join)
def test_a_store_before_a_command_and_after_it_are_one(path: tuple[str, ...], run: Command) -> None:
    """A place that cannot be a store is refused by its name, wherever it stands, and the last one counts."""
    rest, bad = arguments(path), "s3://user:secret@bucket/store"
    before = run("--store", bad, *path, *rest)
    assert before.code == 1, before.err
    assert before.err.startswith("error: [INVALID_ARGUMENT]")
    assert run(*path, *rest, "--store", bad) == before
    assert run("--store", "/nowhere", *path, *rest, "--store", bad) == before
    missing = run(*path, *rest)
    assert missing.code == 2
    assert "name the store: --store" in missing.err


def test_storage_options_stand_after_a_command_too(run: Command, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(partq, "list_queues", lambda *_, storage_options: seen.append(storage_options) or [])
    monkeypatch.setattr(partq, "list_groups", lambda *_, storage_options: [])
    run("--store", store, "--storage-option", "a=1", "list")
    run("list", "--store", store, "--storage-option", "a=1")
    run("--storage-option", "a=0", "list", "--store", store, "--storage-option", "a=1")
    assert seen == [{"a": "1"}] * 3


# ---- help
@pytest.mark.parametrize("path", [(), *LEAVES], ids=" ".join)
def test_help_has_no_codes_of_promises(path: tuple[str, ...], run: Command) -> None:
    told = run(*path, "--help").out
    assert "Usage" in told
    assert re.findall(r"\b[A-Z]\d{1,2}\b", told) == []


@pytest.mark.parametrize("job", sorted((ROOT / "jobs").glob("*.py")), ids=lambda job: job.stem)
def test_help_of_jobs_has_no_codes_of_promises(job: Any) -> None:
    texts = re.findall(r'"([^"\n]*)"|"""(.*?)"""', job.read_text(), re.DOTALL)
    assert re.findall(r"\([A-Z]\d{1,2}\)", str(texts)) == []


def test_the_shell_completes_commands() -> None:
    environment = {
        **os.environ,
        "_SPARK_PARTQ_COMPLETE": "complete_bash",
        "COMP_WORDS": "spark-partq al",
        "COMP_CWORD": "1",
    }
    program = "import sys; sys.argv = ['spark-partq']; from spark_partq.cli import main; main()"
    done = subprocess.run(
        [PROGRAM[0], "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    assert done.stdout.split() == ["alter-queue"]


# ---- what is there already
def test_a_count_that_the_queue_has(command: Command, store: str) -> None:
    """Whoever runs it by a schedule has no error to tell from others; in Python it stays one."""
    queue_of(store, 2, each=5)
    before = kinds(store)
    again = command("scale", "q", "2")
    assert (again.code, again.out, again.err) == (0, "queue q already has 2 partitions\n", "")
    assert json.loads(command("scale", "q", "2", "--json").out)["configured_partitions"] == 2
    done = subprocess.run(
        [PROGRAM[0], "jobs/scale.py", "--store", store, "--queue", "q", "--partitions", "2"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)["configured_partitions"]) == (0, 2)
    assert kinds(store) == before
    with pytest.raises(partq.InvalidArgumentError, match="has 2 partitions already"):
        partq.scale(store, "q", 2)


# ---- alter-queue
def test_alter_queue(command: Command, store: str) -> None:
    queue_of(store, 2, each=5)
    told = command("alter-queue", "q", "--set", "retention_ms=7d", "--set", "reject_to_sender=off")
    assert (told.code, told.err) == (0, "")
    assert told.out == (
        "retention_ms of queue q is 604,800,000, was none\n"
        "reject_to_sender of queue q is off, was including_when_shutdown\n"
        "producers and consumers heed that before their next batch, and need no restart\n"
    )
    again = command("alter-queue", "q", "--set", "retention_ms=604800000")
    assert again.out == "nothing to change: queue q has these settings\n"
    found_ = json.loads(
        command("alter-queue", "q", "--set", "retention_ms=none", "--reset", "reject_to_sender", "--json").out
    )
    assert (found_["settings"]["retention_ms"], found_["settings"]["reject_to_sender"]) == (
        None,
        "including_when_shutdown",
    )
    rows = [line for line in command("describe-queue", "q").out.splitlines() if line.startswith("retention_ms")]
    assert re.fullmatch(r"retention_ms +none \(since [-\d]+ [:\d]+ UTC\) *", rows[0])


def test_add_a_column(command: Command, store: str) -> None:
    queue_of(store, 2, each=5)
    told = command("alter-queue", "q", "--add-column", "note string", "--add-column", "at timestamp")
    assert (told.code, told.err) == (0, "")
    assert told.out == (
        "queue q has the columns k:string,v:long,note:string,at:timestamp\n"
        "consumers read those that are new once they are started again\n"
    )
    again = command("alter-queue", "q", "--add-column", "note string")
    assert again.out == "nothing to change: queue q has these columns\n"
    tail = json.loads(command("tail", "q", "-n", "1", "--json").out.splitlines()[0])
    assert tail["message"]["note"] is None
    assert_refused(command("alter-queue", "q", "--add-column", "note int"), "SCHEMA_MISMATCH", "'note'", "string")
    assert command("alter-queue", "q", "--add-column", "more int", "--set", "retention_ms=1").code == 2


def test_what_alter_queue_refuses(command: Command, store: str) -> None:
    queue_of(store, 2, each=5)
    before = kinds(store)
    wrong = (
        "--set",
        "retentio=7d",
        "--set",
        "max_handoff_time_ms=-1",
        "--set",
        "retention_ms=7 weeks",
        "--reset",
        "size",
    )
    assert_refused(
        command("alter-queue", "q", *wrong),
        "INVALID_ARGUMENT",
        "retentio:",
        "max_handoff_time_ms",
        "retention_ms",
        "size",
    )
    assert_refused(command("alter-queue", "nope", "--set", "retention_ms=7d"), "QUEUE_NOT_FOUND", "'nope'")
    for usage in ([], ["--set", "retention_ms"], ["--set", "retention_ms=1", "--set", "retention_ms=2"]):
        assert command("alter-queue", "q", *usage).code == 2
    assert kinds(store) == before
