"""The commands about consumer groups: what they tell of a group, and what they decide in it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import PROGRAM, created, read_up_to, table_rows
from tests.groups import Consumer, Lasting
from tests.helpers import ROOT, eventually


def test_delete_group(command: Command, store: str) -> None:
    created(store)
    read_up_to(store, "readers", 0, 0)
    assert command("delete-group", "readers", "--yes").out == "deleted group readers\n"
    assert partq.list_groups(store) == []
    assert_refused(command("delete-group", "readers", "--yes"), "GROUP_NOT_FOUND", "'readers'")


def without_ages(found: dict[str, Any]) -> dict[str, Any]:
    """A description of which two that follow one another are equal."""
    return {**found, "members": [{**member, "heartbeat_age_s": None} for member in found["members"]]}


def test_describe_group(command: Command, store: str, living: Consumer) -> None:
    """K8, R7: status, assignor, each client's partitions, and the lag of each partition."""
    found = json.loads(command("describe-group", "g", "--json").out)
    assert without_ages(found) == without_ages(partq.describe_group(store, "g").to_dict())
    assert 0 <= found["members"][0]["heartbeat_age_s"] < 600 and found["members"][0]["expired"] is False
    outcome = command("describe-group", "g")
    told = outcome.out
    rows = table_rows(told)
    assert outcome.code == 0 and re.fullmatch(r"\d+\.\d s", rows[0].pop(4))
    assert rows == [
        ["a", "host-a", "q", "balanced", "session timeout 600,000 ms"],
        ["a/0", "active", "2: 0, 2", "2"],
        ["a/1", "active", "2: 1, 3", "2"],
        ["q", "0", "3", "10", "7", "a/0", "1"],
        ["q", "1", "0", "10", "10", "a/1", "1"],
        ["q", "2", "0", "10", "10", "a/0", "1"],
        ["q", "3", "0", "10", "10", "a/1", "1"],
    ]
    for word in ("Ready since", "balanced", "cooperative", "37"):
        assert word in told
    assert "warning" not in told and "state" not in told.split("lag")[0]
    Consumer(store, "b", session_timeout_ms=600_000)
    living.end_holddown()
    told = command("describe-group", "g").out
    assert "Rebalancing since" in told and "b joined" in told and "│ a/0 → b/0 │" in told and "standby" in told
    assert table_rows(told)[1][4] == "none yet"


@pytest.mark.parametrize(("assignor", "shares"), [("range", ["6", "5", "4"]), ("roundrobin", ["5", "5", "5"])])
def test_describe_group_of_two_queues(command: Command, store: str, assignor: str, shares: list[str]) -> None:
    """K2, K8: the console of the seed: each client's partitions of each queue, their numbers and how many they are."""
    for name, n in (("test1", 10), ("test2", 5)):
        partq.create_queue(store, name, "v long", partitions=n, rebalance_delay_ms=0, max_handoff_time_ms=0)
    for client in ("c1", "c2", "c3"):
        Consumer(store, client, queues=("test1", "test2"), assignors=(assignor,), weight=2.0, static=True)
    told = command("describe-group", "g").out
    assert [row[-1] for row in table_rows(told) if row[0].endswith("/0")] == shares
    if assignor == "range":
        assert ["c1/0", "active", "4: 0-3", "2: 0-1", "6"] in table_rows(told)
    for word in (assignor, "eager", "static", "weight 2", "test1, test2"):
        assert word in told
    found = json.loads(command("describe-group", "g", "--json").out)
    assert (found["assignor"], found["protocol"]) == (assignor, "eager")
    assert [str(sum(map(len, m["partitions"].values()))) for m in found["members"]] == shares


def test_describe_group_of_many_queues(command: Command, store: str) -> None:
    """K8: a pattern may match more queues than fit side by side."""
    for i in range(6):
        partq.create_queue(store, f"q{i}", "v long", partitions=2, rebalance_delay_ms=0)
    a = Consumer(store, "a", queues=tuple(f"q{i}" for i in range(6)), pattern="q.*")
    assert ["a/0", "active", "q0", "2", "0-1"] in table_rows(command("describe-group", "g").out)
    assert "pattern q.*" in command("describe-group", "g").out
    Consumer(store, "b", queues=tuple(f"q{i}" for i in range(6)), pattern="q.*", assignors=("balanced", "range"))
    assert "a/0 → ?" in command("describe-group", "g").out
    lines = command("history", "g").out.splitlines()
    assert any("AssignmentComputed" in line and "balanced, cooperative" in line for line in lines)
    assert any("HandoffStarted" in line and "a/0 → ?" in line for line in lines)
    a.release()
    assert any("balanced, eager" in line for line in command("history", "g").out.splitlines())


def test_describe_group_warns(command: Command, store: str, living: Consumer) -> None:
    living.leave()
    outcome = command("describe-group", "g")
    told = outcome.out
    assert outcome.code == 0 and re.search("^state +Empty", told, re.MULTILINE)
    assert "unassigned" in told and "4 of 4 partitions" in told
    assert "\nwarning: no query is in the group" in told


def test_history(command: Command, store: str, group: Consumer) -> None:
    """U3, R7: every fact in order, one line each; the same as the control table."""
    whole = json.loads(command("history", "g", "--json").out)
    assert [fact["seq"] for fact in whole] == list(range(len(whole)))
    assert {"kind", "partition", "epoch_before", "epoch", "flow", "cause", "by", "at"} <= set(whole[0])
    lines = command("history", "g").out.splitlines()
    assert len(lines) == len(whole) + 1
    assert lines[0].split() == ["seq", "at", "(UTC)", "fact", "of", "epoch", "offset", "cause"]
    assert (
        "Granted" in lines[-2]
        and "q/3 a/1" in lines[-2]
        and "0 → 1" in lines[-2]
        and "a joined with 2 flows" in lines[-2]
    )
    assert json.loads(command("history", "g", "--json", "--last", "2").out) == whole[-2:]
    of_3 = [fact for fact in whole if fact["partition"] == 3]
    for name in ("3", "q/3"):
        assert json.loads(command("history", "g", "--json", "--partition", name).out) == of_3
    assert json.loads(command("history", "g", "--json", "--partition", "3", "--last", "1").out) == of_3[-1:]


def test_history_of_some_kinds(command: Command, store: str, group: Consumer) -> None:
    """R7: only those, also of one partition, and the last of them."""
    whole = json.loads(command("history", "g", "--json").out)
    granted = [fact for fact in whole if fact["kind"] == "Granted"]
    assert len(granted) == 4
    assert json.loads(command("history", "g", "--json", "--kind", "Granted").out) == granted
    assert json.loads(command("history", "g", "--json", "--kind", "Granted", "--last", "1").out) == granted[-1:]
    both = ("--kind", "Granted", "--kind", "MemberJoined", "--kind", "OffsetsReset")
    assert {f["kind"] for f in json.loads(command("history", "g", "--json", *both).out)} == {"Granted", "MemberJoined"}
    assert [f["partition"] for f in json.loads(command("history", "g", "--json", *both, "--partition", "2").out)] == [2]
    assert command("history", "g", "--kind", "Nonsense").code == 2


def test_history_of_what_is_not_there(command: Command, store: str, group: Consumer) -> None:
    assert_refused(command("history", "g", "--partition", "q/9"), "INVALID_ARGUMENT", "q/9", "'g'")
    assert_refused(command("history", "g", "--partition", "r/0"), "INVALID_ARGUMENT", "r/0", "its queues: q")
    assert command("history", "g", "--partition", "x").code == 2
    assert command("history", "g", "--last", "0").code == 2


def test_the_partition_of_an_exclusive_queue(command: Command, store: str) -> None:
    """K5: it has number -1, which is no option."""
    partq.create_queue(store, "q", "v long", partitions=0)
    Lasting(store, "a")
    assert json.loads(command("explain", "q", "-1", "--group", "g", "--json").out)["owner"] == "a/0"
    of_it = json.loads(command("history", "g", "--json", "--partition", "-1").out)
    assert [fact["kind"] for fact in of_it] == ["PartitionAdded", "Granted"]
    assert json.loads(command("history", "g", "--json", "--partition", "q/-1").out) == of_it
    assert command("explain", "q", "--nonsense").code == command("explain", "q", "0", "--nonsense").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe-group", "other"],
        ["history", "other"],
        ["doctor", "--group", "other"],
        ["rebalance", "--group", "other"],
    ],
)
def test_an_unknown_group_is_refused(command: Command, store: str, group: Consumer, arguments: list[str]) -> None:
    assert_refused(command(*arguments), "GROUP_NOT_FOUND", "'other'", "g", store)


def test_rebalance_takes_out_who_has_died(command: Command, store: str, group: Consumer) -> None:
    """W1, R4: with no consumer alive, one run brings the group to rest."""
    told = command("rebalance", "--group", "g", "--every", "0.05")
    assert (told.code, told.err) == (0, "")
    assert "g: MemberLeft a: the session of a expired\n" in told.out
    assert told.out.endswith("g: Ready, 0 members\n")
    assert command("rebalance", "--every", "0.05").out == "g: Ready, 0 members\n"


def test_rebalance_leaves_alone_who_lives(command: Command, store: str, group: Consumer) -> None:
    """W1: it ends as soon as it has seen each member's heartbeat."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.05):
            group.beat()

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        assert command("rebalance", "--every", "0.05").out == "g: Ready, 1 member\n"
    finally:
        ended.set()
        beating.join()


def test_a_rebalance_that_is_interrupted_says_so(store: str) -> None:
    """It has not come to rest: the member may still be alive."""
    created(store)
    Consumer(store, "a", session_timeout_ms=600_000)
    running = subprocess.Popen([*PROGRAM, "--store", store, "rebalance", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        eventually(lambda: catches(running.pid, signal.SIGTERM), "that it heeds SIGTERM")
        running.terminate()
        out, _ = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == 130 and json.loads(out)[0]["members"] == 1


def catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search(r"^SigCgt:\s+(\w+)$", status, re.MULTILINE)
    return caught is not None and int(caught[1], 16) >> (number - 1) & 1 == 1


@pytest.mark.parametrize(
    "program", [["-c", "from spark_partq.cli import main; main()", "--store", "{}", "rebalance", "--watch"], ["jobs/rebalance.py", "--store", "{}"]]
)  # fmt: skip
def test_rebalance_for_ever(store: str, group: Consumer, program: list[str]) -> None:
    """W1, U1: it decides until it is told to stop."""
    arguments = [*(part.format(store) for part in program), "--every", "0.05"]
    running = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        eventually(lambda: partq.describe_group(store, "g").members == (), "that the member is taken out")
        running.terminate()
        out, err = running.communicate(timeout=30)
    finally:
        running.kill()
    assert (running.returncode, err) == (0, "")
    assert "MemberLeft" in out and "the session of a expired" in out
