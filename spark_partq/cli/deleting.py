"""The command that deletes messages of a key."""

from __future__ import annotations

from typing import Annotated

import typer

import spark_partq as partq
from spark_partq.cli.common import Json, QueueName, Target, app, confirm, count
from spark_partq.cli.output import print_json, say_prose
from spark_partq.cli.tail import column_values
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.key_values import key_values


@app.command("delete-messages")
def delete_messages(
    context: typer.Context,
    queue: QueueName,
    key: Annotated[
        list[str],
        typer.Option(metavar="COLUMN=VALUE", help="A column of the key and its value. Repeat it for each column."),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete all messages of one key, also dead ones, for example because the person whose data they are asks for it.

    The command rewrites the files that contain these messages, without them; the other messages keep their offsets. maintain deletes the old
    files when vacuum_grace_ms has passed. The command does not delete messages that producers write meanwhile: run it again.
    """
    target: Target = context.obj
    wanted = column_values(key)
    state = open_queue(target.opened, queue).state
    key_values(state, wanted)  # refused before anything is asked
    told = ", ".join(f"{name}={value}" for name, value in wanted.items())
    if not yes:
        confirm(
            f"Delete all messages of {told} from queue {queue}?",
            f"no message of queue {queue!r} was deleted: not confirmed (--yes does not ask)",
            queue=queue,
        )
    deleted = partq.delete_messages(target.store, queue, wanted, storage_options=target.storage_options)
    if as_json:
        print_json({"queue": queue, "deleted": deleted})
        return
    if not deleted:
        say_prose(f"queue {queue} has no message of {told}: nothing was deleted")
        return
    say_prose(
        f"deleted {count(deleted, 'message')} of queue {queue}",
        f"maintain deletes their files after vacuum_grace_ms ({state.settings.vacuum_grace_ms:,} ms): spark-partq maintain {queue}",
    )
