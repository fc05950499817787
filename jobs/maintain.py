"""Remove messages that every group has acknowledged or that are too old, once or for ever. Needs no Spark.

Every ten minutes:

    python jobs/maintain.py --store s3://bucket/store --every 600
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from spark_partq.core.errors import InvalidArgumentError, NotAStoreError, PartqError, QueueNotFoundError
from spark_partq.spark.jobs import Stop, StorageOptions, StoreUri, key_values, main, refusal, tell
from spark_partq.storage.procedures import maintain as procedure
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store


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

    For each queue that cannot be maintained, the job prints a line on stderr, and goes on with the others. With --every it
    tries that queue again in the next pass; without, it ends with exit code 1.

    SIGTERM and SIGINT end the job after the running pass, with exit code 0. A wrong name, or a queue or store that does not
    exist, gives one line on stderr and exit code 1; wrong usage gives exit code 2.
    """
    opened = Store.at(store, key_values(storage_option))
    stop = Stop()
    while True:
        errors: list[PartqError] = []
        for report in reports(opened, queue, errors.append):
            print(json.dumps(report.to_dict()), flush=True)
        for error in errors:
            tell(f"error: {refusal(error)}")
        if every is None and errors:
            raise typer.Exit(1)
        if every is None or stop.wait(every):
            return


def reports(
    store: Store, queue: str | None, complain: Callable[[PartqError], None]
) -> Iterator[procedure.MaintenanceReport]:
    """What one pass did to each queue."""
    try:
        if queue is None:
            yield from procedure.maintain_all(store, complain)
        else:
            yield procedure.maintain(open_queue(store, queue))
    except (InvalidArgumentError, NotAStoreError, QueueNotFoundError):
        raise
    except PartqError as error:
        complain(error)


if __name__ == "__main__":
    main(maintain)
