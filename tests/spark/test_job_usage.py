"""Jobs that need no session: maintenance and scaling; and what every job refuses before it starts one (U1, S1, S2)."""

from __future__ import annotations

import ast
import json
import re
import signal
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.spark.jobs import key_values
from tests.groups import Consumer
from tests.helpers import ROOT, eventually, finished, put
from tests.spark.jobs import Here, Start, only_error

UNKNOWN = r"error: \[QUEUE_NOT_FOUND\] there is no queue 'nope'[^\n]*there\n"


@pytest.mark.parametrize("by", ["python", pytest.param("spark-submit", marks=pytest.mark.long)])
def test_maintain_once_and_until_it_is_told_to_stop(start: Start, store: str, by: str) -> None:
    partq.create_queue(store, "q", "v long", partitions=1)
    expected = {"queue": "q", "removed_messages": 0, "vacuumed_files": 0, "merged_files": 0, "waiting_for": []}
    once = start("maintain", "--store", store, by="python")
    job = start("maintain", "--store", store, "--queue", "q", "--every", "0.1", by=by)
    assert [json.loads(line) for line in finished(once).splitlines()] == [expected]
    assert job.stdout is not None
    assert [json.loads(job.stdout.readline()) for _ in range(2)] == [expected] * 2
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=180)
    assert job.returncode == 0, out + err
    assert "Traceback" not in out + err


@pytest.mark.long
def test_rebalance_by_spark_submit(start: Start, store: str) -> None:
    """U1, W1: it takes out a member that is silent, and says so; by Python this is shown with the commands."""
    partq.create_queue(store, "q", "v long", partitions=1)
    Consumer(store, "a", session_timeout_ms=500)
    job = start("rebalance", "--store", store, "--every", "0.1")
    eventually(lambda: not partq.describe_group(store, "g").members, "that the member is taken out")
    job.send_signal(signal.SIGTERM)
    facts = [json.loads(line) for line in finished(job).splitlines()]
    assert "MemberLeft" in [fact["kind"] for fact in facts]


# ---- scaling
def test_scale(here: Here, store: str) -> None:
    """U1, S1, S2: what is waited for and what the queue is then are lines of JSON; the same count again is refused."""
    partq.create_queue(store, "q", "v long", partitions=2)
    put(store, 1, range(5))
    about = ["--store", store, "--queue", "q", "--partitions"]
    done = here("scale", *about, "4")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert (told["queue"], told["operating_partitions"], told["status"], told["depth"]) == ("q", 4, "Ready", 5)
    again = here("scale", *about, "4")
    assert again.code == 0 and json.loads(again.out)["configured_partitions"] == 4
    drain = here("scale", *about, "3", "--mode", "drain", "--timeout", "0")
    assert drain.code == 1
    assert re.fullmatch(r"error: \[SCALING_IN_PROGRESS\] [^\n]* run it again to go on\n", drain.err)
    waiting = {"what": "consumers to acknowledge what is left", "left": 5, "alone": True}
    assert json.loads(drain.out) == {"queue": "q", "waiting_for": waiting}
    assert json.loads(here("scale", *about, "4").out)["ingress"] is True  # taken back
    refused = here("scale", *about, "1", "--mode", "delete", "--confirm-lost", "4")
    assert (refused.code, refused.out) == (1, "")
    assert "would lose 5 messages" in refused.err
    assert json.loads(here("scale", *about, "1", "--mode", "delete", "--confirm-lost", "5").out)["lost"] == 5


@pytest.mark.parametrize("by", ["python", pytest.param("spark-submit", marks=pytest.mark.long)])
def test_scale_that_is_told_to_stop(start: Start, here: Here, store: str, by: str) -> None:
    """U1: what it has begun is gone on with."""
    partq.create_queue(store, "q", "v long", partitions=1)
    put(store, 0, range(5))
    arguments = ["--store", store, "--queue", "q", "--partitions", "2", "--mode", "drain"]
    job = start("scale", *arguments, by=by)
    assert job.stdout is not None
    assert json.loads(job.stdout.readline())["waiting_for"]["left"] == 5
    job.send_signal(signal.SIGTERM)
    assert re.fullmatch(r"error: \[SCALING_IN_PROGRESS\] told to stop [^\n]* run it again to go on", only_error(job))
    Consumer(store, "c").ack(0, 5)
    assert json.loads(here("scale", *arguments).out.splitlines()[-1])["operating_partitions"] == 2


# ---- refusals
@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        ("produce", ["--path", "in", "--checkpoint", "c"]),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "console"]),
        ("from_kafka", ["--servers", "127.0.0.1:1", "--topic", "t", "--checkpoint", "c"]),
        ("to_kafka", ["--group", "g", "--servers", "127.0.0.1:1", "--topic", "t", "--checkpoint", "c"]),
        ("maintain", []),
        ("scale", ["--partitions", "3"]),
    ],
)
def test_an_unknown_queue_is_one_line(here: Here, store: str, job: str, arguments: list[str]) -> None:
    partq.create_queue(store, "there", "v long")
    refused = here(job, "--store", store, "--queue", "nope", *arguments)
    assert refused.code == 1
    assert re.fullmatch(UNKNOWN, refused.err)


@pytest.mark.parametrize(
    ("job", "arguments"),
    [("consume", ["--format", "console"]), ("to_kafka", ["--servers", "127.0.0.1:1", "--topic", "t"])],
)
def test_a_consumer_does_not_read_other_groups(
    here: Here, store: str, monkeypatch: pytest.MonkeyPatch, job: str, arguments: list[str]
) -> None:
    """It may not have the right, and what is damaged there is not its own."""
    partq.create_queue(store, "q", "v long")
    Consumer(store, "a", group="other")
    for entry in (Path(store) / "groups/other/control/_delta_log").iterdir():
        entry.write_bytes(b"no JSON")

    def session(*_: object) -> None:
        raise partq.InvalidArgumentError("it starts a session")

    monkeypatch.setattr(partq, "session", session)
    told = here(job, "--store", store, "--queue", "q", "--group", "g", "--checkpoint", "c", *arguments)
    assert told.err == "error: [INVALID_ARGUMENT] it starts a session\n"


def test_an_order_by_a_column_that_there_is_not(here: Here, store: str) -> None:
    partq.create_queue(store, "q", "k string, n long")
    refused = here("produce", "--store", store, "--queue", "q", "--checkpoint", "c", "--order-by", "n, offset")
    said = "[INVALID_ARGUMENT] order_by column 'offset' is not a column of queue 'q', which has k, n"
    assert (refused.code, refused.err) == (1, f"error: {said}\n")


def test_each_exit_code_of_a_process(start: Start, store: str) -> None:
    partq.create_queue(store, "there", "v long")
    about = ["--store", store, "--queue", "nope"]
    refused = start("consume", *about, "--group", "g", "--checkpoint", "c", "--format", "console", by="python")
    misused = start("produce", *about, by="python")
    told = start("maintain", "--help", by="python")
    _, err = refused.communicate(timeout=180)
    assert refused.returncode == 1 and re.fullmatch(UNKNOWN, err)
    _, err = misused.communicate(timeout=180)
    assert misused.returncode == 2 and "--checkpoint" in err and "Traceback" not in err
    assert "--every" in finished(told)


@pytest.mark.parametrize(
    ("job", "arguments", "word"),
    [
        ("consume", ["--group", "g", "--checkpoint", "c"], "--handler"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "console", "--handler", "a:b"], "not both"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "delta"], "--path"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--handler", "nocolon"], "package.module:function"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--handler", "no_such_module:f"], "no_such_module"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--handler", "os:no_such"], "no_such"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--handler", "os:sep"], "function"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "console", "--trigger", "often"], "often"),
        ("consume", ["--group", "g", "--checkpoint", "c", "--format", "console", "--read-option", "x"], "name=value"),
        ("produce", ["--checkpoint", "c", "--trigger", "-1 seconds"], "-1 seconds"),
        ("produce", ["--checkpoint", "c", "--max-files-per-trigger", "0"], "--max-files-per-trigger"),
        ("produce", ["--checkpoint", "c", "--malformed", "ignore"], "--malformed"),
        ("produce", ["--checkpoint", "c", "--malformed", "drop"], "not for parquet"),
        (
            "produce",
            ["--checkpoint", "c", "--format", "csv", "--malformed", "drop", "--source-option", "MODE=PERMISSIVE"],
            "--source-option",
        ),
        ("produce", [], "--checkpoint"),
        ("maintain", ["--every", "soon"], "--every"),
        ("scale", [], "--partitions"),
        ("scale", ["--partitions", "many"], "--partitions"),
        ("scale", ["--partitions", "3", "--mode", "fast"], "--mode"),
        ("scale", ["--partitions", "3", "--timeout", "soon"], "--timeout"),
        ("scale", ["--partitions", "1", "--confirm-lost", "3"], "--confirm-lost"),
    ],
)
def test_wrong_usage(here: Here, store: str, job: str, arguments: list[str], word: str) -> None:
    refused = here(job, "--store", store, "--queue", "q", *arguments)
    assert refused.code == 2
    assert word in refused.err
    assert not Path(store).exists()


@pytest.mark.parametrize("job", ["produce", "consume", "from_kafka", "to_kafka", "maintain", "rebalance", "scale"])
def test_help_tells_of_every_option(here: Here, job: str) -> None:
    told = here(job, "--help").out
    (function,) = (
        part
        for part in ast.parse((ROOT / "jobs" / f"{job}.py").read_text()).body
        if isinstance(part, ast.FunctionDef) and part.name == job
    )
    parameters = [argument.arg for argument in function.args.args]
    assert len(parameters) >= 3
    for name in parameters:
        option = "--" + name.strip("_").replace("_", "-")
        assert re.search(rf"{option}\s.*\w+ \w+", told), f"{option} is not explained"


def test_key_values() -> None:
    assert key_values(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    assert key_values(None) == {}
