"""Many histories: ``python -m tests.faults --histories 200 --seed 1``. One JSON line each, and one of totals; exit code 1 if anything is found."""

from __future__ import annotations

import argparse
import json
import queue
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.faults.machine import without_roots_rights
from tests.faults.objects import SERVERS
from tests.faults.plan import draw
from tests.faults.run import STEPS, run
from tests.processes import Pool
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
    serve = SERVERS[given.object_store_server]
    if given.object_store_server == "versitygw":
        try:
            versitygw.program()
        except versitygw.NoGatewayError as error:
            parser.error(str(error))
    folder = given.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    kinds = given.steps.split(",") if given.steps else None
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in range(given.seed, given.seed + given.histories):
        waiting.put(seed)
    until = time.monotonic() + 60 * given.minutes
    begun: list[int] = []
    lines: list[dict[str, Any]] = []

    def work(number: int) -> None:
        own = folder / f"applications-{number}"
        own.mkdir(parents=True, exist_ok=True)
        pool = Pool(own, "plain", without_roots_rights())
        try:
            while time.monotonic() < until:
                try:
                    seed = waiting.get_nowait()
                except queue.Empty:
                    return
                begun.append(seed)
                plan = draw(seed, given.messages, kinds, on_objects=given.object_store)
                how = {"keep": given.keep, "cross_check": given.cross_check}
                lines.append(run(plan, pool, folder / f"history-{seed}", serve=serve, **how))
                print(json.dumps(lines[-1]), flush=True)
        finally:
            pool.close()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(given.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps(totals(lines)), flush=True)
    return 1 if len(lines) < max(1, len(begun)) or any(line["findings"] for line in lines) else 0


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


sys.exit(main())
