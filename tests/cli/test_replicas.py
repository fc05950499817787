"""The commands about replicas: what they do, what they tell, what they refuse with nothing changed (S7)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.replicas import in_sync
from spark_partq.storage.store import Store
from tests.cli.outcome import Command, Outcome, assert_refused
from tests.cli.queues import HEEDS_CTRL_C, fill, kinds, queue_of
from tests.helpers import ROOT, eventually
from tests.scaled import Reader, Sink, messages, stored, while_scaling


@pytest.fixture
def there(tmp_path: Path) -> str:
    """The path of the replica's store, which does not exist yet."""
    return str(tmp_path / "there")


@pytest.fixture
def queue(command: Command, store: str, there: str) -> str:
    """Queue `q` of 2 partitions with 5 messages in each, which has a replica; the replica's store."""
    queue_of(store, 2, each=5)
    assert command("replicate", "q", "--to", there).code == 0
    return there


@pytest.fixture
def at(run: Command, there: str) -> Command:
    """The command, about the replica's store."""
    return lambda *arguments: run("--store", there, *arguments)


def files(*stores: str) -> dict[str, bytes]:
    """Every file of the stores, and what it holds."""
    return {str(p): p.read_bytes() for store in stores for p in sorted(Path(store).rglob("*")) if p.is_file()}


def moved_away(store: str) -> str:
    """The primary's folder is not where it was."""
    away = f"{store}-away"
    shutil.move(store, away)
    return away


def seen_by(store: str) -> list[int]:
    return sorted(v for rows in stored(store).values() for _, v in rows)


# ---- what they do
def test_replicate(command: Command, at: Command, store: str, queue: str) -> None:
    """S7: a pass copies what is new; the replica can be looked at."""
    assert at("describe-queue", "q").code == 0
    assert seen_by(queue) == seen_by(store)
    assert f"replicas             {queue}" in command("describe-queue", "q").out
    fill(store, 0, 3)
    told = command("replicate", "q", "--to", queue)
    assert (told.code, told.out, told.err) == (0, f"replica of queue q in {queue}: 0 messages behind\n", "")
    assert seen_by(queue) == seen_by(store)
    found = json.loads(command("replicate", "q", "--to", queue, "--json").out)
    assert (found["location"], found["reachable"], found["total_lag"]) == (queue, True, 0)
    assert kinds(store).count("ReplicaAdded") == 1


def test_watch(store: str, there: str) -> None:
    """S7: it goes on until SIGTERM."""
    queue_of(store, 2, each=5)
    arguments = ["--store", store, "replicate", "q", "--to", there, "--watch", "--every", "0.05"]
    process = subprocess.Popen(
        [sys.executable, "-c", HEEDS_CTRL_C, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        eventually(lambda: bool(partq.replicas(store, "q")) and in_sync(Store.at(store), "q"), "the first pass", 60)
        fill(store, 1, 4)
        eventually(lambda: in_sync(Store.at(store), "q"), "another pass", 60)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (0, "")
    assert "0 messages behind" in out and "copied 1 commit, 0 messages behind" in out
    assert seen_by(there) == seen_by(store)


def test_remove(command: Command, store: str, queue: str) -> None:
    done = command("replicate", "q", "--to", queue, "--remove")
    assert (done.code, done.out) == (0, f"queue q is followed in {queue} no more\n")
    assert partq.replicas(store, "q") == []
    assert len(seen_by(queue)) == 10
    assert_refused(command("replicate", "q", "--to", queue, "--remove"), "REPLICA", "'q'", queue, "none")
    assert command("replicate", "q", "--to", queue).code == 0  # it is followed again


def test_promote(command: Command, at: Command, store: str, queue: str) -> None:
    """S7: what was left is copied, the primary gives and takes nothing more, consumers go on where they were."""
    reader = Reader(store)
    assert len(reader.all()) == 10
    fill(store, 0, 3)
    done = at("promote", "q")
    assert (done.code, done.err) == (0, "")
    fenced = f"{store} is fenced: its producers and consumers stop with QUEUE_FENCED"
    assert done.out == f"queue q in {queue} is the primary now\n{fenced}\n"
    assert Reader(queue).all() == [("k", 0), ("k", 1), ("k", 2)]
    for arguments in (["scale", "q", "3"], ["ingress", "disable", "q"], ["maintain", "q"]):
        assert_refused(command(*arguments), "QUEUE_FENCED", "'q'", queue)
    assert at("scale", "q", "3").code == 0


def test_roles(command: Command, at: Command, store: str, queue: str) -> None:
    """S7, S8: who looks at a store sees whether its queues are used there; the status stays what it is of any queue."""

    def told(look: Command) -> tuple[str, str, str, str, str]:
        """The role in each of the four pictures, if they are of one mind, and whose replicas are shown."""
        (listed,) = json.loads(look("list", "--json").out)["queues"]
        described = json.loads(look("describe-queue", "q", "--json").out)
        (shown,) = re.findall(r"^role +(.*?) *$", look("describe-queue", "q").out, re.MULTILINE)
        header, cells = [
            [c.strip() for c in re.split("[│┃]", line)[1:-1]] for line in look("list").out.splitlines()[1:4:2]
        ]
        row = dict(zip(header, cells, strict=True))
        assert listed["status"] == described["status"] == row["status"] == "Ready"
        return listed["role"], described["role"], shown, row.get("role", "primary"), ", ".join(described["replicas"])

    assert told(command) == ("primary",) * 4 + (queue,)
    assert told(at) == (f"replica of {store}",) * 4 + ("",)
    assert at("promote", "q").code == 0
    assert told(command) == (f"taken over by {queue}",) * 4 + (queue,)
    assert told(at) == ("primary",) * 4 + ("",)


def test_promote_when_the_primary_is_gone(run: Command, at: Command, store: str, queue: str) -> None:
    """S7: the replica is used; the old primary, once it is back, is fenced by whoever opens its queue."""
    away = moved_away(store)
    done = at("promote", "q")
    assert (done.code, done.out) == (0, f"queue q in {queue} is the primary now\n")
    assert done.err.startswith(f"warning: {store} was not fenced: ") and done.err.count("\n") == 1

    sink = Sink(queue)
    assert sink.write(0, messages(100, 120)) == 20
    assert sink.write(0, messages(100, 120)) == 0
    assert at("scale", "q", "4").out == "queue q has 4 partitions\n"
    assert sink.write(1, messages(120, 140)) == 20
    assert at("ingress", "disable", "q").code == at("ingress", "enable", "q").code == at("maintain", "q").code == 0
    assert len(Reader(queue).all()) == 50

    assert run("--store", store, "describe-queue", "q").code == 1  # nothing has made it again meanwhile
    shutil.move(away, store)
    assert_refused(run("--store", store, "scale", "q", "3"), "QUEUE_FENCED", "'q'", queue)
    assert kinds(store).count("QueueFenced") == 1
    with pytest.raises(partq.QueueFencedError):
        Sink(store).write(0, messages(0, 5))
    assert len(seen_by(store)) == 10
    assert at("doctor").code == 0


def test_a_sink_goes_on_at_the_promoted_replica(at: Command, store: str, queue: str) -> None:
    """S7, Q5: records of batches are copied, so a batch that is in is not written again."""
    assert Sink(store).write(7, messages(100, 120)) == 20
    assert at("promote", "q").code == 0
    assert Sink(queue).write(7, messages(100, 120)) == 0
    assert Sink(queue).write(8, messages(120, 125)) == 5


# ---- scaling
@pytest.mark.parametrize("mode", ["live", "drain"])
def test_scale_waits_for_the_replica(command: Command, at: Command, store: str, queue: str, mode: str) -> None:
    """S7: after it the replica knows the new count, and has all messages."""
    Reader(store).all()
    fill(store, 0, 3)
    done = while_scaling(lambda: command("scale", "q", "4", "--mode", mode), Reader(store).turn)
    assert (done.code, done.out) == (0, "queue q has 4 partitions\n")
    told = partq.describe_queue(queue, "q")
    assert (told.status, told.configured_partitions, told.operating_partitions) == ("Ready", 4, 4)
    assert in_sync(Store.at(store), "q")
    assert at("promote", "q").code == 0
    assert partq.describe_queue(queue, "q").operating_partitions == 4
    assert at("scale", "q", "2").code == 0


def test_a_drain_does_not_wait_for_a_deleted_group_in_the_replica(command: Command, store: str, queue: str) -> None:
    """S4, S7: the replica knows of its deletion."""
    other = Reader(store, group="other")
    Reader(store).all()
    assert command("replicate", "q", "--to", queue).code == 0
    other.expire()
    assert command("delete-group", "other", "--yes").code == 0
    done = while_scaling(lambda: command("scale", "q", "4", "--mode", "drain"), Reader(store).turn)
    assert (done.code, done.out) == (0, "queue q has 4 partitions\n")


@pytest.mark.parametrize("mode", ["live", "drain"])
@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_scale_without_its_replica(command: Command, store: str, queue: str, mode: str, left: str) -> None:
    """S7: refused before anything is changed; nothing takes the replica's place."""
    shutil.move(queue, f"{queue}-away")
    if left != "nothing":
        Path(queue).mkdir()
    before = files(store)
    assert_refused(command("scale", "q", "4", "--mode", mode, "--timeout", "0"), "REPLICA", "'q'", queue)
    assert files(store) == before
    assert files(queue) == {}
    shutil.rmtree(queue, ignore_errors=True)
    shutil.move(f"{queue}-away", queue)
    assert command("scale", "q", "4").code == 0


# ---- refused, with nothing changed
def test_an_unknown_queue(command: Command, store: str, there: str) -> None:
    queue_of(store, 2, each=5)
    before = files(store)
    for arguments in (["--to", there], ["--to", there, "--watch"], ["--to", there, "--remove"]):
        assert_refused(command("replicate", "nope", *arguments), "QUEUE_NOT_FOUND", "'nope'", store)
    assert_refused(command("promote", "nope"), "REPLICA", "'nope'", store, "no replica")
    assert files(store) == before
    assert not Path(there).exists()


def test_a_place_inside_the_other(run: Command, command: Command, store: str, tmp_path: Path) -> None:
    """Neither may lie in the other, also by another name."""
    queue_of(store, 2, each=5)
    link = tmp_path / "link"
    link.symlink_to(store)
    before = files(str(tmp_path))
    for place in (store, f"{store}/", f"{store}/there", f"{store}/queues/q", str(link), str(tmp_path)):
        for watch in ([], ["--watch"]):
            assert_refused(command("replicate", "q", "--to", place, *watch), "REPLICA", "'q'", "place of its own")
    assert files(str(tmp_path)) == before


def test_a_place_that_is_taken(command: Command, store: str, there: str) -> None:
    queue_of(store, 2, each=5)
    partq.create_queue(there, "q", "v bigint", partitions=2)
    before = files(store, there)
    assert_refused(command("replicate", "q", "--to", there), "REPLICA", "'q'", there, "no replica of this queue")
    assert files(store, there) == before


def test_a_place_that_is_a_file(command: Command, store: str, there: str) -> None:
    queue_of(store, 2, each=5)
    Path(there).write_text("mine")
    before = files(store)
    refused = command("replicate", "q", "--to", there)
    assert refused.code == 1 and refused.err.startswith("error: [") and refused.err.count("\n") == 1
    assert there in refused.err
    assert files(store) == before and Path(there).read_text() == "mine"


def test_what_cannot_be_promoted(command: Command, at: Command, store: str, queue: str) -> None:
    before = files(store, queue)
    assert_refused(command("promote", "q"), "REPLICA", "'q'", store, "no replica")
    assert_refused(command("promote", "q", "--force"), "REPLICA", "'q'", store, "no replica")
    assert files(store, queue) == before
    assert at("promote", "q").code == 0
    before = files(store, queue)
    for force in ([], ["--force"]):
        assert_refused(at("promote", "q", *force), "REPLICA", "'q'", queue, "already promoted")
    for rest in ([], ["--watch"]):
        assert_refused(command("replicate", "q", "--to", queue, *rest), "REPLICA", "'q'", queue, "promoted")
    assert_refused(command("replicate", "q", "--to", queue, "--remove"), "REPLICA", "'q'", queue, "took over")
    assert files(store, queue) == before


def test_promote_where_there_is_no_store(at: Command, there: str) -> None:
    assert_refused(at("promote", "q"), "NOT_A_STORE", there)
    assert not Path(there).exists()


def test_a_removed_replica_is_promoted_only_by_force(command: Command, at: Command, store: str, queue: str) -> None:
    assert command("replicate", "q", "--to", queue, "--remove").code == 0
    before = files(store, queue)
    assert_refused(at("promote", "q"), "REPLICA", "'q'", store, "force")
    assert files(store, queue) == before
    assert_refused(at("promote", "q", "--force"), "REPLICA", "'q'", queue, "goes on without it")
    assert command("scale", "q", "3").code == 0
    os.rename(store, f"{store}-lost")
    forced = at("promote", "q", "--force")
    assert forced.code == 0 and forced.err.startswith(f"warning: {store} was not fenced: ")


def test_a_replica_takes_nothing_else(at: Command, store: str, queue: str) -> None:
    """S7: whatever would write it is refused."""
    before = files(store, queue)
    for arguments in (
        ["scale", "q", "4"],
        ["scale", "q", "4", "--mode", "drain"],
        ["scale", "q", "1", "--mode", "delete", "--confirm-lost", "99"],
        ["ingress", "disable", "q"],
        ["copy-stuck", "q"],
        ["maintain", "q"],
        ["replicate", "q", "--to", f"{queue}-2"],
    ):
        assert_refused(at(*arguments), "REPLICA", "'q'", queue)
    with pytest.raises(partq.ReplicaError, match="promote it"):
        Sink(queue).write(0, messages(0, 5))
    assert at("maintain").code == 0  # all that are used, of which there are none
    assert files(store, queue) == before
    assert not Path(f"{queue}-2").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["replicate", "q"], "--to"),
        (["replicate"], "QUEUE"),
        (["replicate", "q", "--to", "x", "--watch", "--remove"], "--remove"),
        (["replicate", "q", "--to", "x", "--watch", "--json"], "--json"),
        (["replicate", "q", "--to", "x", "--force"], "--force"),
        (["replicate", "q", "--to", "x", "--every", "0"], "--every"),
        (["replicate", "q", "--to", "x", "--to-option", "noequals"], "name=value"),
        (["promote"], "QUEUE"),
        (["promote", "q", "--to", "x"], "--to"),
    ],
)
def test_wrong_usage(command: Command, store: str, arguments: list[str], word: str) -> None:
    queue_of(store, 2, each=5)
    before = files(store)
    told: Outcome = command(*arguments)
    assert told.out == "" and told.code in (1, 2)
    assert word in told.err and "Traceback" not in told.err
    assert files(store) == before
    assert not Path("x").exists()
