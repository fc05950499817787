"""The measured process of `runnel_peer`, in an environment of its own, which has Runnel and not this package.

``python runnel_worker.py write URL STREAM ROWS TIMES`` and ``… read URL STREAM ROWS`` print the seconds of each as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from runnel import App, Record  # type: ignore[import-not-found]
from runnel.worker import Worker  # type: ignore[import-not-found]

KEYS, PARTITIONS, PIPELINE = 10_000, 16, 1_000


class Row(Record):  # type: ignore[misc]
    id: int
    k: str
    body: str
    at: int


def stream_of(url: str, name: str):  # type: ignore[no-untyped-def]
    app = App(name="bench", redis_url=url, log_level="warning")
    stream = app.stream(name, record=Row, partition_by="k", partition_count=PARTITIONS, partition_size=1_000_000_000)
    return app, stream


def row(number: int) -> Row:
    return Row(id=number, k=f"key-{number * 7919 % KEYS:05d}", body=f"{number:032x}" * 2 + "x" * 16, at=number)


async def write(url: str, name: str, count: int, times: int) -> list[float]:
    """Rows that are there are written, a pipeline of them after another."""
    _, stream = stream_of(url, name)
    rows, taken = [row(number) for number in range(count)], []
    for _ in range(times):
        began = time.perf_counter()
        for first in range(0, count, PIPELINE):
            await stream.send(*rows[first : first + PIPELINE])
        taken.append(time.perf_counter() - began)
    return taken


def read(url: str, name: str, count: int) -> None:
    """Between the first batch of rows that the processor is given and the last; then the process ends."""
    app, stream = stream_of(url, name)
    seen, began = 0, 0.0

    @app.processor(stream, prefetch_count=PIPELINE, join_delay=0, assignment_sleep=0.1)
    async def take(events):  # type: ignore[no-untyped-def]
        nonlocal seen, began
        async for rows in events.take(PIPELINE, within=1).records():
            began = began or time.perf_counter()
            seen += len(rows)
            if seen >= count:
                print(json.dumps([time.perf_counter() - began]), flush=True)
                os._exit(0)  # a worker has no end

    Worker(app).start()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "write":
        print(json.dumps(asyncio.run(write(rest[0], rest[1], int(rest[2]), int(rest[3])))))
    else:
        read(rest[0], rest[1], int(rest[2]))
