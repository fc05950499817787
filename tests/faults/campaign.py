"""Runs the histories of one process of a campaign."""

from __future__ import annotations

import argparse
import json
import queue
import time
from pathlib import Path
from typing import Any

from tests.faults.machine import without_roots_rights
from tests.faults.objects import SERVERS
from tests.faults.plan import draw
from tests.faults.run import run
from tests.processes import Pool


def run_histories(
    number: int,
    given: argparse.Namespace,
    folder: Path,
    kinds: list[str] | None,
    waiting: queue.Queue[int],
    until: float,
) -> list[dict[str, Any]]:
    """Run histories one after the other, as long as seeds wait; returns their lines."""
    own = folder / f"applications-{number}"
    own.mkdir(parents=True, exist_ok=True)
    pool = Pool(own, "plain", without_roots_rights())
    lines: list[dict[str, Any]] = []
    try:
        while time.monotonic() < until:
            try:
                seed = waiting.get_nowait()
            except queue.Empty:
                break
            plan = draw(seed, given.messages, kinds, on_objects=given.object_store)
            how = {"keep": given.keep, "cross_check": given.cross_check, "serve": SERVERS[given.object_store_server]}
            lines.append(run(plan, pool, folder / f"history-{seed}", **how))
            print(json.dumps(lines[-1]), flush=True)
    finally:
        pool.close()
    return lines
