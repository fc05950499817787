"""Messages that cannot be processed: put them aside, look at them, and put them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from spark_partq.storage.procedures import redrive as _redrive
from spark_partq.storage.procedures.redrive import DeadMessage
from spark_partq.storage.store import Store, StorePath

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def reject(
    rows: DataFrame,
    reason: str | Column,
    *,
    store: StorePath | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Put messages of a micro-batch into the dead-message queue of their queue: each once, also if another query delivers them again.

    For use in a ``foreachBatch`` function, with rows of its DataFrame that still have all of their columns. The messages are acknowledged
    with the micro-batch; leave their rows out of everything else that the function writes. If the micro-batch is repeated, the function must
    reject the same messages.

    Parameters
    ----------
    reason : str or Column
        Why the messages are rejected, for people to read. A text of 1 to 10,000 characters that is the same for the same kind of fault; or a
        column, for at most one call in a micro-batch.
    store : path or Store, optional
        The store of the queues. None is the store that the query reads.

    Raises
    ------
    InvalidArgumentError
        Outside of a micro-batch; if the queue has no ``dead_letter_queue``; if an earlier call in the micro-batch has rejected other
        messages for the same reason.
    SchemaMismatchError
        If the rows lack columns of the queue.
    IngressDisabledError
        If the dead-message queue takes no messages.
    """
    from spark_partq.spark import reject as _reject  # here, as it loads Spark

    _reject.reject(rows, reason, None if store is None else Store.at(store, storage_options))


def dead_letters(
    store: StorePath, queue: str, *, storage_options: Mapping[str, str] | None = None
) -> Iterator[DeadMessage]:
    """The messages of a dead-message queue, partition by partition, in the order in which they are put back.

    Parameters
    ----------
    queue : str
        A dead-message queue, or a queue that has one.

    Raises
    ------
    NotAStoreError, QueueNotFoundError, QueueNotReadyError
    InvalidArgumentError
        If the queue neither is a dead-message queue nor has one.
    """
    return _redrive.dead_letters(Store.at(store, storage_options), queue)


def redrive(store: StorePath, queue: str, *, storage_options: Mapping[str, str] | None = None) -> dict[str, int]:
    """Put the messages of a dead-message queue back into the queues from which they came: each once, also if the call is interrupted.

    In these queues they are new messages, behind the messages that a queue has by now, and messages of one key keep their order. If a queue has
    ``dead_letter_order='hold'``, disable its ingress first and let its groups read all of its messages. Then no other message comes between.

    Parameters
    ----------
    queue : str
        A dead-message queue, or a queue that has one. In the second case the messages of other queues stay in the dead-message queue.

    Returns
    -------
    dict
        For each queue, by name, how many messages this call has put back.

    Raises
    ------
    NotAStoreError, QueueNotFoundError, QueueNotReadyError, InvalidArgumentError, SchemaMismatchError, QueueFencedError, ReplicaError
    IngressDisabledError, ClockSkewError
        If a queue with ``dead_letter_order='skip'`` takes no messages now, or this machine's clock is wrong. Then nothing more is put back, and groups hold the keys that they held.
    KeysHeldError
        If other messages may come between. Then nothing more is put back.
    """
    return _redrive.redrive(Store.at(store, storage_options), queue)
