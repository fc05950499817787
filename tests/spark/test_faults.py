"""Histories of faults: producers, consumers and operators that are killed, stopped and moved, and nothing lost, twice or misordered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.crosscheck import UNRECORDED
from tests.faults.plan import draw
from tests.faults.run import run
from tests.processes import Kind, Pool

# With Spark only consumers have a JVM; what they are given is what they would have anyway.
SHORT = ["kill_consumer", "stop_consumer", "resize", "kill_producer"]
LONG = [*["kill"] * 8, *["stop"] * 3, "kill_executor", "resize", *["kill"] * 7, *["stop"] * 2, "kill_executor"]


@pytest.mark.parametrize(
    ("pool", "messages", "steps", "pace"),
    [("plain", 500, SHORT, 1.0), pytest.param("spark", 50_000, LONG, 2.5, marks=pytest.mark.long)],
    indirect=["pool"],
)
def test_a_history_of_faults(
    pool: Pool,
    pools: dict[Kind, Pool],
    tmp_path: Path,
    messages: int,
    steps: list[str],
    pace: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Q5, S5, H4: `python -m tests.faults` runs many more, and draws what happens."""
    plan = draw(messages, messages, steps, pace=pace, machine_s=60.0)  # it has other suites beside it
    told = run(plan, pools["plain"], tmp_path / "history", consumers=pool)
    with capsys.disabled():
        print(f"\n{json.dumps(told)}")
    assert told["findings"] == 0, told
    if "cross-check" in told:
        assert told["cross-check"] == "ok"
        assert (UNRECORDED in told["not done"]) == (pool is not pools["plain"])
    else:
        assert any(text.startswith("cross-check: ") for text in told["not done"])
    assert told["happened"]["kill -9"] >= sum(step.startswith("kill") for step in steps) and told["happened"][
        "SIGSTOP"
    ] >= sum(step.startswith("stop") for step in steps)
