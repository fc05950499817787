"""The examples of commands in documents run as they stand there; `tests/howto.py` says which test runs which page."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

import spark_partq as partq
from spark_partq.storage.inspect.replicas import in_sync
from spark_partq.storage.store import Store
from tests.cli.outcome import Command
from tests.cli.queues import HEEDS_CTRL_C
from tests.clocks import wall_clock
from tests.core.test_documents import section
from tests.groups import Consumer, Lasting
from tests.helpers import ROOT, eventually, new_file, opened
from tests.scaled import stored

OCTOBER = dt.datetime(2026, 10, 31, tzinfo=dt.UTC)
SCHEMA = pa.schema([("customer", pa.string()), ("amount", pa.float64())])
LINE = re.compile(r"^    spark-partq ((?:--|list)[^\n#]*)", re.MULTILINE)


def lines(page: str, heading: str | None = None) -> list[str]:
    """The commands of a page of docs/, or of one section of it, without the name of the program."""
    text = (ROOT / "docs" / page).read_text()
    return [line.strip() for line in LINE.findall(section(text, heading) if heading else text)]


def done(run: Command, line: str) -> str:
    """What the command of a page printed; it ends well and warns of nothing."""
    outcome = run(*shlex.split(line))
    assert (outcome.code, outcome.err) == (0, ""), line
    return outcome.out


@contextmanager
def going_on(line: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command of a page that goes on until SIGTERM, in the folder. It ends well, and warns of nothing."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", HEEDS_CTRL_C, *shlex.split(line)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=env,
    )  # fmt: skip
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (0, "")


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    """The folder of the test has a `store`: queue `orders` of 8 partitions, with 4 messages of October 2026 and 6 of now in
    each, and two members that share it. The first has read 3 messages of partition 0, and was given 5.
    """
    monkeypatch.chdir(tmp_path)
    partq.create_queue(
        "store", "orders", "customer string, amount double", key="customer", partitions=8,
        rebalance_delay_ms=0, max_handoff_time_ms=60_000,
    )  # fmt: skip
    for number in range(8):
        send("store", number, 4, OCTOBER)
        send("store", number, 6)
    members = [member("store", instance) for instance in "ab"]
    members[0].release()
    for each in members:
        each.beat()
    members[0].ack(0, 3, delivered=5, queue="orders")
    return members


def member(store: str, instance: str) -> Consumer:
    return Lasting(store, instance, group="billing", queues=("orders",))


def send(store: str, number: int, count: int, at: dt.datetime | None = None) -> None:
    """Messages of two customers. Which partition they lie in is the test's choice."""
    customers = ["ada", "joe"] * (count // 2)
    file = new_file(store, "orders", number, {"customer": customers, "amount": [1.0] * count})
    queue = opened(store, "orders")
    with wall_clock(at):
        queue.table(number).append([file], None, queue.state.generation)


def positions(store: str) -> list[int]:
    return [partition.position for partition in partq.describe_group(store, "billing").partitions]


def test_settings_and_tail(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = lines("options.md", "Settings of a queue")
    assert {"create-queue", "alter-queue", "tail"} <= {word for line in told for word in shlex.split(line)}
    for line in told:
        outcome = run(*shlex.split(line))
        assert (outcome.code, outcome.err) == (0, "queue orders has no message\n" if "-n 5" in line else ""), line
    settings = partq.describe_queue("store", "orders").settings
    assert (settings["retention_ms"], settings["max_handoff_time_ms"]) == (None, 10_000)


def test_the_command_line(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    partq.create_queue("store", "orders", "v long")
    told = lines("options.md", "On the command line")
    assert len(told) == 2
    for line in told:
        assert run(*shlex.split(line)).code == 0, line


def test_scaling(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1, S2, S4, S6: each mode, to the counts that the page names. The last line shows that the queue is exclusive."""
    monkeypatch.chdir(tmp_path)
    partq.create_queue("store", "orders", "k string, v long", key="k", partitions=8)
    counts = []
    for line in lines("scaling.md", "In short"):
        printed = done(run, line)
        counts.append(partq.describe_queue("store", "orders").operating_partitions)
    assert counts == [12, 12, 4, 0, 0]
    assert "exclusive" in printed


def test_ingress(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3, S4: off and on, and the procedure step by step; whether the queue takes messages after each line."""
    monkeypatch.chdir(tmp_path)
    partq.create_queue("store", "orders", "v long", partitions=4)
    member("store", "a")
    taken = []
    for line in lines("scaling.md", "Ingress (S3)"):
        assert run(*shlex.split(line)).code == 0, line
        taken.append(partq.describe_queue("store", "orders").ingress)
    assert taken == [False, True, False, False, False, False, True]
    assert partq.describe_queue("store", "orders").operating_partitions == 12


def test_what_is_stuck(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: the messages that an exclusive queue held when it became partitioned are copied into its partitions."""
    monkeypatch.chdir(tmp_path)
    partq.create_queue("store", "orders", "customer string, amount double", key="customer", partitions=0)
    send("store", -1, 6)
    partq.scale("store", "orders", 2)
    assert partq.describe_queue("store", "orders").stuck == 6
    (line,) = lines("scaling.md", "Exclusive queues (S6)")
    done(run, line)
    found = partq.describe_queue("store", "orders")
    assert (found.stuck, sum(partition.depth for partition in found.partitions)) == (0, 6)


def test_rebalance(run: Command, orders: list[Consumer]) -> None:
    """R7: who has what and why, of a group whose partitions were shared again when a second member came."""
    told = lines("rebalance.md")
    described, explained, of_one, newest, checked = (done(run, line) for line in told)
    assert "Ready" in described and "a/0" in described and "b/0" in described
    assert "HandoffStarted" in newest and "Granted" in newest
    owner = partq.describe_group("store", "billing").partitions[6].flow
    assert owner is not None and owner in explained
    facts = [line for line in of_one.splitlines() if line.lstrip()[:1].isdigit()]
    assert len(facts) == 5 and all("orders/6" in fact for fact in facts)
    assert " 0 faults" in checked


def test_operations(run: Command, orders: list[Consumer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the page in turn; where it asks, somebody says yes."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question) or True)
    told = iter(lines("operations.md"))
    for partition in partq.describe_group("store", "billing").partitions:
        orders["ab".index(str(partition.flow)[0])].ack(partition.partition, 10, queue="orders")
    for each in orders:
        each.leave()
    assert "would set 8 partitions: 48 messages come again" in done(run, next(told))
    assert positions("store") == [10] * 8
    done(run, next(told))
    assert positions("store") == [4] * 8  # the first message of November
    again = member("store", "a")
    again.beat()
    assert "billing" in done(run, next(told))
    assert "Ready" in done(run, next(told))
    assert "reset" in done(run, next(told))
    facts, granted = (done(run, next(told)) for _ in range(2))
    assert "PositionReset" in facts and "PositionReset" not in granted and "Granted" in granted
    for line in [next(told) for _ in range(5)]:
        with going_on(line, tmp_path) as process:
            assert process.stdout is not None and process.stdout.readline()
    assert " 0 faults" in done(run, next(told))
    again.leave()
    done(run, next(told))
    assert partq.list_groups("store") == []
    segments = []
    for _ in range(2):
        done(run, next(told))
        segments.append(partq.describe_queue("store", "orders").settings["segment_ms"])
    assert segments == [86_400_000, None]
    assert "deleted 40 messages" in done(run, next(told))
    assert {row[0] for rows in stored("store", SCHEMA, "orders").values() for row in rows} == {"joe"}
    assert len(asked) == 3 and list(told) == []


def test_replicas(run: Command, orders: list[Consumer], tmp_path: Path) -> None:
    """S7: a pass, a watch, an end of it and a promotion; the group goes on in the standby where it was."""
    text = (ROOT / "docs" / "replicas.md").read_text()
    make, watch, remove, promote, *_ = lines("replicas.md")
    assert "standby: 0 messages behind" in done(run, make)
    send("store", 0, 2)
    with going_on(watch, tmp_path):
        eventually(lambda: in_sync(Store.at("store"), "orders"), "a pass of the watch", 60)
    send("store", 0, 2)
    calls = re.findall(r"`(partq\.replica\w+\(store, [^`]+\))`", text)
    assert len(calls) == 2
    for call in calls:
        found = eval(call, {"partq": partq, "store": "store"})
    assert [(replica.total_lag, replica.reachable) for replica in found] == [(0, True)]
    done(run, remove)
    assert partq.replicas("store", "orders") == []
    done(run, make)  # it is followed once more
    orders[0].ack(0, 4, delivered=6, queue="orders")
    send("store", 0, 2)
    assert "the primary now" in done(run, promote)
    first = partq.describe_group("standby", "billing").partitions[0]
    assert (first.position, first.end) == (4, 16)
    with pytest.raises(partq.QueueFencedError):
        partq.scale("store", "orders", 9)
    on = member("standby", "a")
    on.ack(0, 16, queue="orders")
    assert positions("standby")[0] == 16
    done(run, make.replace("store store", "store standby").replace("to standby", "to elsewhere"))  # a new standby
    assert " 0 faults" in done(run, "--store standby doctor")


def test_stores_that_were_moved(run: Command, orders: list[Consumer]) -> None:
    """S7: first the primary, then the standby. A pass is refused until the replica is removed and made again; a promotion then finds both."""
    make, _, _, promote, *moves = lines("replicas.md")
    at_new, again, at_old, to_new = moves
    done(run, make)
    os.rename("store", "moved")
    assert "[REPLICA]" in run(*shlex.split(make.replace("store store", "store moved"))).err
    for line in (at_new, again):
        done(run, line.replace("NEW", "moved"))
    os.rename("standby", "elsewhere")
    assert (
        "[REPLICA]" in run(*shlex.split(make.replace("store store", "store moved").replace("standby", "elsewhere"))).err
    )
    for line in (at_old, to_new):
        line = line.replace("store store", "store moved")
        done(run, line.replace("OLD", "standby").replace("NEW", "elsewhere"))
    send("moved", 0, 2)
    assert "the primary now" in done(run, promote.replace("standby", "elsewhere"))
    assert partq.describe_queue("elsewhere", "orders").to_dict()["partitions"][0]["next_offset"] == 12


def test_monitoring(run: Command, orders: list[Consumer], tmp_path: Path) -> None:
    """The exporter, the collector in a program of one's own, and both checks, of a group that gets on."""
    text = (ROOT / "docs" / "monitoring.md").read_text()
    metrics, check = lines("monitoring.md")
    lag = 'partq_group_lag_messages{group="billing",partition="0",queue="orders"} 7.0'
    with going_on(metrics.replace("9464", "0"), tmp_path) as process:
        assert lag in answer_of(process)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program += "\nfrom prometheus_client import generate_latest\nprint(generate_latest(REGISTRY).decode())"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    assert lag in subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout
    (probe,) = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(liveness.*?)```", text, re.DOTALL)]
    name, *words = probe["livenessProbe"]["exec"]["command"]
    assert name == "spark-partq"
    for line in (check, shlex.join(words).replace("s3://bucket/queues", "store")):
        with getting_on(orders[0]):
            assert done(run, line).startswith("group billing is healthy: it has acknowledged")


def test_console(orders: list[Consumer], tmp_path: Path) -> None:
    (line,) = lines("console.md")
    with going_on(f"{line} --port 0", tmp_path) as process:
        assert json.loads(answer_of(process, "api/groups/billing"))["description"]["lag"] == 77


def answer_of(process: subprocess.Popen[str], path: str = "") -> str:
    """What a command serves at the address that it prints, or below it."""
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    with urllib.request.urlopen(address + path, timeout=60) as answer:
        return str(answer.read().decode())


@contextmanager
def getting_on(member: Consumer) -> Iterator[None]:
    """The member acknowledges message after message of partition 0, which gets as many."""
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(0.05):
            send("store", 0, 2)
            member.ack(0, positions("store")[0] + 2, queue="orders")

    reading = threading.Thread(target=read)
    reading.start()
    try:
        yield
    finally:
        ended.set()
        reading.join()
