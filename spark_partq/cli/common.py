"""What the commands share: the store they are about, how they print."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from spark_partq.spark.jobs import StorageOptions, key_values
from spark_partq.storage.store import Store

app = typer.Typer(
    name="spark-partq",
    help="Partitioned message queues for Spark on Delta tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")]


@dataclass(frozen=True)
class Target:
    """The store that a command is about."""

    path: str | None
    storage_options: dict[str, str] = field(repr=False)

    @property
    def store(self) -> str:
        if not self.path:
            raise typer.BadParameter("name the store: --store PATH before the command, or SPARK_PARTQ_STORE")
        return self.path

    @property
    def opened(self) -> Store:
        return Store.at(self.store, self.storage_options)


@app.callback()
def common(
    context: typer.Context,
    store: Annotated[
        str | None, typer.Option(envvar="SPARK_PARTQ_STORE", help="Folder or object-store URI of the store.")
    ] = None,
    storage_option: StorageOptions = None,
) -> None:
    context.obj = Target(store, key_values(storage_option))


def count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
