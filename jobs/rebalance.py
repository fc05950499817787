"""A separate rebalancer, for groups whose queries may all be gone or slow. Needs no Spark.

Queries decide for their group themselves; with this job, a group also makes progress while none of its queries is alive:

    python jobs/rebalance.py --store s3://bucket/store
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from spark_partq.core.errors import PartqError
from spark_partq.core.group.facts import GroupFact
from spark_partq.spark.jobs import Stop, StorageOptions, StoreUri, key_values, main, tell
from spark_partq.storage.procedures.rebalance import MAX_EVERY_S, Rebalancer, run
from spark_partq.storage.store import Store


def rebalance(
    store: StoreUri,
    group: Annotated[
        str | None, typer.Option(help="One group. Default: all, also groups that are created later.")
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.05, max=MAX_EVERY_S, metavar="SECONDS", help="How often to read the groups.")
    ] = 1.0,
    storage_option: StorageOptions = None,
) -> None:
    """Make the decisions that are due in consumer groups, and print one line of JSON per fact.

    The job runs until SIGTERM or SIGINT, and then ends with exit code 0. A group or store that does not exist gives one line
    on stderr and exit code 1; wrong usage gives exit code 2. For an error that may pass, the job prints a line on stderr and
    goes on.
    """
    rebalancer = Rebalancer(Store.at(store, key_values(storage_option)), group)
    stop = Stop()

    def report(name: str, facts: list[GroupFact]) -> None:
        for fact in facts:
            record = {key: value for key, value in dataclasses.asdict(fact).items() if value not in (None, "")}
            print(json.dumps({"group": name, **record}), flush=True)

    def complain(error: PartqError) -> None:
        tell(f"error: {error}")

    run(rebalancer, every, stop.wait, report, complain)


if __name__ == "__main__":
    main(rebalance)
