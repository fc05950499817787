"""Somebody deletes the messages of a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_partq.storage.procedures.delete_messages import delete_messages
from spark_partq.storage.queue.handle import open_queue
from spark_partq.testing.simulation.process import Process
from spark_partq.testing.simulation.stored import StoredQueue

if TYPE_CHECKING:
    from spark_partq.testing.simulation.run import Run


def delete_key(run: Run, key: str) -> Callable[[Process], None]:
    """Delete them. All that were there when this began are gone when it has ended."""

    def body(process: Process) -> None:
        uri, sent = run.live, run.oracle.sent
        run.oracle.rewritten.keys.add(key)
        stored = run.oracle.queues.get((uri, "q"), StoredQueue())  # it may be about to be created again
        before = {id_: place for id_, place in stored.places.items() if sent[id_].key == key}
        delete_messages(open_queue(process.store(uri), "q"), {"k": key})
        if stored is run.oracle.queues.get((uri, "q")) and not stored.is_deleted:
            left = [id_ for id_, place in before.items() if _is_there(stored, id_, place)]
            run.oracle.fail(f"LEFT: {', '.join(left)} of key {key}, which was deleted" if left else "")

    return body


def _is_there(stored: StoredQueue, id_: str, place: tuple[int, int]) -> bool:
    number, offset = place
    files = stored.partitions[number].files.values()
    return stored.places.get(id_) == place and any(low <= offset < high for low, high in files)
