"""Change the partition count of a queue while it is in use. Needs no Spark.

    python jobs/scale.py --store s3://bucket/store --queue orders --partitions 12 --timeout 600

A scheduler may run the job again, also after an interruption: the job goes on with the change, and a queue that already has the count stays as it is.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

import spark_partq as partq
from spark_partq.core.errors import ScalingInProgressError
from spark_partq.spark.jobs import ScalingMode, Stop, StorageOptions, StoreUri, ToOptions, key_values, main


def scale(
    store: StoreUri,
    queue: Annotated[str, typer.Option(help="Queue to change.")],
    partitions: Annotated[
        int, typer.Option(help="The queue's new partition count: 1 to 4096, or 0 for an exclusive queue.")
    ],
    mode: ScalingMode = "live",
    confirm_lost: Annotated[
        int | None, typer.Option(min=0, help="With --mode delete: how many messages may be lost.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Longest time to wait. Default: for ever.")
    ] = None,
    storage_option: StorageOptions = None,
    to_option: ToOptions = None,
) -> None:
    """Change the partition count of a queue and wait until the change has ended.

    The job prints one line of JSON whenever the progress changes, and at the end one with the queue.

    SIGTERM and SIGINT end the waiting with exit code 1; to go on, run the job again. A refused request gives one line on
    stderr and exit code 1; wrong usage gives exit code 2.
    """
    if confirm_lost is not None and mode != "delete":
        raise typer.BadParameter(f"--confirm-lost is for --mode delete; {mode} loses nothing")
    stop = Stop()
    last: partq.ScaleProgress | None = None

    def report(progress: partq.ScaleProgress) -> None:
        nonlocal last
        if progress != last:
            last = progress
            print(json.dumps({"queue": queue, "waiting_for": dataclasses.asdict(progress)}), flush=True)
        if stop.wait(0):
            raise ScalingInProgressError(
                f"told to stop while queue {queue!r} is scaled to {partitions} partitions; run it again to go on",
                queue=queue,
                partitions=partitions,
            )

    storage_options = key_values(storage_option)
    try:
        found = partq.scale(
            store,
            queue,
            partitions,
            mode,
            confirm_lost=confirm_lost,
            timeout_s=timeout,
            report=report,
            storage_options=storage_options,
            replica_options=key_values(to_option) or None,
        )
    except partq.InvalidArgumentError as error:
        if error.params.get("has") != str(partitions):
            raise
        found = partq.describe_queue(store, queue, storage_options=storage_options)
    record = {"queue": queue, **found.to_dict()}
    for name in ("name", "partitions", "schema", "settings"):
        del record[name]
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(scale)
