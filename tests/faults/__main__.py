"""Many histories: ``python -m tests.faults --histories 200 --seed 1``. One JSON line each, and one of totals; exit code 1 if anything is found."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.faults.campaign import run_histories
from tests.faults.objects import SERVERS
from tests.faults.run import STEPS
from tools import versitygw


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--histories", type=int, default=1)
    told = "of the first history; each further one has the next; default: drawn"
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help=told)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further history after so many")
    parser.add_argument("--messages", type=int, default=5_000, help="of each history, at least")
    parser.add_argument("--jobs", type=int, default=1, help="histories at once")
    told = "share of histories that lie in an object store; default: %(default)s"
    parser.add_argument("--object-store", type=float, default=0.2, metavar="SHARE", help=told)
    told = "which server; default: %(default)s"
    parser.add_argument("--object-store-server", choices=SERVERS, default="moto", help=told)
    parser.add_argument("--steps", help=f"exactly these, by commas, instead of those drawn: {', '.join(STEPS)}")
    parser.add_argument("--folder", type=Path, help="where histories lie; default: a new one for temporary files")
    parser.add_argument("--keep", action="store_true", help="keep every folder")
    told = "ask a second judge, which needs Go; without Go that is told under `not done`"
    parser.add_argument("--cross-check", action=argparse.BooleanOptionalAction, default=True, help=told)
    given = parser.parse_args()
    if given.object_store_server == "versitygw":
        try:
            versitygw.program()
        except versitygw.NoGatewayError as error:
            parser.error(str(error))
    folder = given.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    kinds = given.steps.split(",") if given.steps else None
    until = time.monotonic() + 60 * given.minutes
    processes = multiprocessing.get_context("spawn")
    # Each job is a process: the judge of one history would hold up the proxy of another one in the same process.
    with processes.Manager() as manager, ProcessPoolExecutor(given.jobs, processes) as executor:
        waiting = manager.Queue()
        for seed in range(given.seed, given.seed + given.histories):
            waiting.put(seed)
        jobs = [
            executor.submit(run_histories, number, given, folder, kinds, waiting, until) for number in range(given.jobs)
        ]
        lines = [line for job in jobs for line in job.result()]
    print(json.dumps(totals(lines)), flush=True)
    return 1 if not lines or any(line["findings"] for line in lines) else 0


def totals(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    lines = list(lines)
    happened: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for line in lines:
        happened.update(line["happened"])
        found.update(line["found"])
    checked = [line for line in lines if line.get("cross-check") in ("ok", "illegal")]
    return {
        "histories": len(lines),
        "cross-checked": len(checked),
        "operations": sum(line["operations"] for line in checked),
        "of these in an object store": sum(line["place"] == "object store" for line in lines),
        "messages": sum(line.get("messages", 0) for line in lines),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
        "with findings": sorted(line["seed"] for line in lines if line["findings"]),
        "found": dict(found),
        "longest wait s": max((line.get("longest wait s", 0.0) for line in lines), default=0.0),
        "happened": dict(sorted(happened.items())),
        "not done": sorted({text for line in lines for text in line["not done"]}),
    }


if __name__ == "__main__":
    sys.exit(main())
