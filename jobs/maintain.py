"""Remove messages that every group has acknowledged or that are too old, once or for ever. Needs no Spark.

Every ten minutes:

    python jobs/maintain.py --store s3://bucket/store --every 600
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

import spark_partq as partq
from spark_partq.spark.jobs import Stop, StorageOptions, StoreUri, key_values, main


def maintain(
    store: StoreUri,
    queue: Annotated[
        str | None, typer.Option(help="One queue. Default: all, also queues that are created later.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Repeat after this many seconds, until SIGTERM.")
    ] = None,
    storage_option: StorageOptions = None,
) -> None:
    """Remove messages that no group needs any more, and print one line of JSON per queue and pass.

    SIGTERM and SIGINT end the job after the running pass, with exit code 0. A refused request gives one line on stderr
    and exit code 1; wrong usage gives exit code 2.
    """
    storage = key_values(storage_option)
    stop = Stop()
    while True:
        for report in partq.maintain(store, queue, storage_options=storage):
            print(json.dumps(report.to_dict()), flush=True)
        if every is None or stop.wait(every):
            return


if __name__ == "__main__":
    main(maintain)
