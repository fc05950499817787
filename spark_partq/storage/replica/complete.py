"""Whether a replica is a whole copy of its queue, so that it can be promoted: a file that each pass puts when it ends (S7)."""

from __future__ import annotations

import json

from spark_partq.core.queue.state import QueueState
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import SYNCED
from spark_partq.storage.store import Store, queue_folder


def is_complete(target: Store, queue: str) -> bool:
    """Whether a pass has ended, and if the copy then got messages of a later incarnation, one since."""
    return target.files.info(_path(queue)) is not None


def has_ended(target: Store, queue: str, lag: int) -> None:
    """A pass has ended, and left so many messages."""
    target.files.put(_path(queue), json.dumps({"at": target.now().isoformat(), "lag": lag}).encode())


def begin(target: Store, state: QueueState) -> bool:
    """A pass is about to copy a queue; whether the copy was whole, and is not until the pass ends.

    So if it does not know the queue's incarnation: it gets messages before the fact that says which offsets of the former one are the same.
    """
    if incarnation_there(target, state.name) in (None, state.incarnation):
        return False
    was_whole = is_complete(target, state.name)
    target.files.delete(_path(state.name))
    return was_whole


def incarnation_there(target: Store, queue: str) -> str | None:
    """The incarnation of a queue that its copy knows; None if there is no control table yet."""
    if not DeltaLog(target, f"{queue_folder(queue)}/control", queue).exists():
        return None
    return queue_state(target, queue).incarnation


def _path(queue: str) -> str:
    return f"{queue_folder(queue)}/replica/{SYNCED}"
