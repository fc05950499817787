"""The command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq import cli
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.settings import QueueSettings
from tests.cli.outcome import Command, assert_refused
from tests.groups import Consumer
from tests.helpers import ROOT, eventually, opened, put


def created(store: str, **settings: Any) -> None:
    partq.create_queue(store, "q", "v long", partitions=2, **settings)


# ---- create-queue
def test_create_queue_with_all_it_takes(command: Command, store: str) -> None:
    made = command(
        *("create-queue", "orders", "--schema", "country string, id long, amount double", "--key", "country, id"),
        *("--partitions", "5", "--retention-ms", "7d", "--rebalance-delay-ms", "250"),
    )
    assert (made.code, made.out, made.err) == (0, "created queue orders, 5 partitions\n", "")
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
    usual = {"status": "Ready", "ingress": True}
    assert told == {
        "queues": [
            {"name": "empty", **usual, "partitions": 1, "configured_partitions": 1, "depth": 0, "groups": []},
            {"name": "q", **usual, "partitions": 2, "configured_partitions": 2, "depth": 4, "groups": ["readers"]},
        ],
        "groups": ["readers"],
    }
    rows = [line.split("│")[1:-1] for line in command("list").out.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["empty", "Ready", "1", "enabled", "0", ""],
        ["q", "Ready", "2", "enabled", "4", "readers"],
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
        ["delete-group", "g"],
        ["describe-group", "g"],
        ["history", "g"],
        ["rebalance"],
        ["doctor"],
    ],
)
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


@pytest.fixture
def group(store: str) -> Consumer:
    """Group `g` on queue `q` of 4 partitions with 10 messages each; it has read 3 of partition 0."""
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=100, max_handoff_time_ms=200)
    for p in range(4):
        put(store, p, range(10))
    member = Consumer(store, "a", 2, session_timeout_ms=300)
    member.ack(0, 3)
    return member


def test_describe_group(command: Command, store: str, group: Consumer) -> None:
    """K8, R7: status, assignor, each client's partitions, and the lag of each partition."""
    assert json.loads(command("describe-group", "g", "--json").out) == partq.describe_group(store, "g").to_dict()
    told = command("describe-group", "g").out
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in told.splitlines() if line.startswith("│")]
    assert rows == [
        ["a", "host-a", "q", "balanced", "session timeout 300 ms"],
        ["a/0", "active", "2: 0, 2", "2"],
        ["a/1", "active", "2: 1, 3", "2"],
        ["q", "0", "3", "10", "7", "a/0", "1"],
        ["q", "1", "0", "10", "10", "a/1", "1"],
        ["q", "2", "0", "10", "10", "a/0", "1"],
        ["q", "3", "0", "10", "10", "a/1", "1"],
    ]
    for word in ("Ready since", "balanced", "cooperative", "37"):
        assert word in told
    assert "warning" not in told
    Consumer(store, "b", session_timeout_ms=300)
    group.end_holddown()
    told = command("describe-group", "g").out
    assert "Rebalancing since" in told and "b joined" in told and "│ a/0 → b/0 │" in told and "standby" in told


def table_rows(told: str) -> list[list[str]]:
    return [[c.strip() for c in line.split("│")[1:-1]] for line in told.splitlines() if line.startswith("│")]


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


def test_describe_group_warns(command: Command, store: str, group: Consumer) -> None:
    group.leave()
    told = command("describe-group", "g").out
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


def test_history_of_what_is_not_there(command: Command, store: str, group: Consumer) -> None:
    assert_refused(command("history", "g", "--partition", "q/9"), "INVALID_ARGUMENT", "q/9", "'g'")
    assert_refused(command("history", "g", "--partition", "r/0"), "INVALID_ARGUMENT", "r/0", "its queues: q")
    assert command("history", "g", "--partition", "x").code == 2
    assert command("history", "g", "--last", "0").code == 2


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


def test_doctor(command: Command, store: str, group: Consumer) -> None:
    """A store in order is exit code 0, a damaged one 1 with what is wrong and what to do."""
    good = command("doctor")
    assert (good.code, good.err) == (0, "")
    assert good.out == "checked 1 queue (4 partitions, 40 messages) and 1 group (13 facts): 0 faults, 0 warnings\n"
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
