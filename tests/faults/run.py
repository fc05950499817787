"""Runs a history from its plan to its verdict."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from spark_partq.testing.resultcheck import Result
from tests import committing, s3server
from tests.faults import nemesis, operators, store_faults
from tests.faults.crosscheck import compare
from tests.faults.history import History
from tests.faults.judge import Evidence, judge
from tests.faults.objects import Serve, object_store
from tests.faults.plan import RECORDERS, WRITERS, Plan
from tests.faults.targets import positions_rise, relayed, results
from tests.helpers import opened
from tests.processes import Pool

STEPS: Mapping[str, Callable[[History, Random], str]] = {
    "kill": nemesis.kill,
    "kill_producer": nemesis.kill_producer,
    "kill_consumer": nemesis.kill_consumer,
    "kill_operator": nemesis.kill_operator,
    "kill_executor": nemesis.kill_executor,
    "kill_all": nemesis.kill_all,
    "stop": nemesis.stop,
    "stop_producer": nemesis.stop_producer,
    "stop_consumer": nemesis.stop_consumer,
    "stop_operator": nemesis.stop_operator,
    "leave": nemesis.leave,
    "resize": operators.resize,
    "maintain": operators.maintain,
    "replicate": operators.replicate,
    "promote": operators.promote,
    "reset": operators.reset,
    "disk_full": operators.disk_full,
    "read_only": operators.read_only,
    "clock": operators.clock,
    "lost_answers": store_faults.lost_answers,
    "store_errors": store_faults.store_errors,
    "store_timeouts": store_faults.store_timeouts,
    "store_slow": store_faults.store_slow,
    "cut_answers": store_faults.cut_answers,
}


def bound_s(plan: Plan) -> float:
    """How long messages may wait behind a fault: until a dead member is noticed, the holddown, a handoff, and what the machine takes.

    Behind a fault two handoffs may follow each other: one that was under way, and one that the fault began.
    """
    documented = plan.session_ms + plan.settings["rebalance_delay_ms"] + 2 * plan.settings["max_handoff_time_ms"]
    return documented / 1000 + plan.machine_s


def run(
    plan: Plan,
    pool: Pool,
    folder: Path,
    *,
    consumers: Pool | None = None,
    keep: bool = False,
    cross_check: bool = True,
    serve: Serve = s3server.running,
) -> dict[str, Any]:
    """What happened and what was found; the folder stays if anything was found, or is to be kept.

    `consumers` are applications of another kind than `pool`, in which consumers run. A history in an object store has one of its own, and
    applications of its own, which reach it; `serve` starts its server. With `cross_check` a second judge is asked.
    """
    if not plan.on_objects:
        return _run(History(plan, pool, folder, consumers), keep, cross_check)
    with object_store(plan.seed, serve) as objects:
        own = pool.beside(
            folder / "applications", {**objects.variables, committing.VARIABLE: str(folder / committing.FOLDER)}
        )
        try:
            return _run(History(plan, own, folder, objects=objects), keep, cross_check)
        finally:
            own.close()


def _run(history: History, keep: bool, cross_check: bool) -> dict[str, Any]:
    began = time.monotonic()
    plan, folder = history.plan, history.folder
    done: list[str] = []
    verdict, stuck = None, ""
    try:
        for role in history.roles:
            history.start(role)
        for step in plan.steps:
            if not step.at_once or not done:
                history.flows()
            done.append(f"{step.kind} {STEPS[step.kind](history, Random(step.seed))}".strip())
        history.flows()
        history.finish()
        found = evidence(history)
        verdict = judge(found)
        if cross_check:
            history.not_done.update(compare(found, verdict, folder / "operations.jsonl"))
        positions_rise(history.reach(history.table))
    except Exception as error:  # whatever it is, it is found
        stuck = f"{type(error).__name__}: {error}"
        (folder / "stuck.txt").write_text(f"{traceback.format_exc()}\n{history.explain()}")
    if history.objects is not None:
        history.happened += history.objects.happened()
    findings = [] if verdict is None else [f"{kind}: {text}" for kind, text in verdict.findings]
    findings += [f"stuck behind {done[-3:]}: {stuck}"] if stuck else []
    keep = keep or bool(findings)
    if findings:
        (folder / "findings.txt").write_text("\n".join([*findings, *done]))
    history.close(not stuck, keep)
    if not keep:
        shutil.rmtree(folder)
    return {
        "seed": plan.seed,
        "place": "disk" if history.objects is None else "object store",
        "seconds": round(time.monotonic() - began, 1),
        **({} if verdict is None else verdict.figures),
        "found": {} if verdict is None else {kind: n for kind, n in verdict.counts().items() if n},
        "findings": len(findings),
        "first": [text[:300] for text in findings[:3]],
        "happened": dict(sorted(history.happened.items())),
        "steps": done,
        "not done": sorted(history.not_done),
        **({"folder": str(folder)} if keep else {}),
    }


def evidence(history: History) -> Evidence:
    """What is to be judged."""
    queue = opened(history.reach(history.store))
    return Evidence(
        sent={p.name: (history.messages_of(p), history.batches(p)) for p in history.producers},
        records={group: history.records(group) for group in (WRITERS, RECORDERS)},
        facts={group: history.facts(group) for group in (WRITERS, RECORDERS)},
        former={group: [history.facts(group, store) for store in history.former] for group in (WRITERS, RECORDERS)},
        ends={number: queue.table(number).next_offset for number in queue.state.all_partitions},
        results={
            "table": list(results(history.reach(history.table))),
            "queue": list[Result](relayed(history.reach(history.results))),
        },
        marks=history.marks,
        in_force=history.in_force,
        end=time.monotonic(),
        bound_s=bound_s(history.plan),
        ended=history.ended,
        commits={group: history.commits(group) for group in (WRITERS, RECORDERS)},
    )
