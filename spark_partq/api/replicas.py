"""Replicas of a queue in other stores (S7). Needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping

from spark_partq.core import arguments
from spark_partq.storage.inspect import replicas as _replicas
from spark_partq.storage.inspect.replicas import ReplicaStatus
from spark_partq.storage.procedures import promote as _promotion
from spark_partq.storage.procedures import remove_replica as _removal
from spark_partq.storage.procedures import replicate as _replication
from spark_partq.storage.procedures.promote import Promotion
from spark_partq.storage.store import Store, StorePath


def replicate(
    store: StorePath,
    queue: str,
    location: StorePath,
    *,
    storage_options: Mapping[str, str] | None = None,
    replica_options: Mapping[str, str] | None = None,
) -> ReplicaStatus:
    """Make a replica of a queue and of its groups in another store, or bring the replica up to date, in one pass (S7).

    The call may be interrupted at any moment; calling it again goes on. `scale` brings the replica up to date, too.

    Parameters
    ----------
    location : path or Store
        The other store.
    replica_options : dict, optional
        Storage options of the other store, if it is given as a path. Without them, the options of `store` are used if both are
        object stores.

    Raises
    ------
    ReplicaError
        If the other store cannot hold a replica of this queue, its replica was promoted, or it cannot be reached.
    QueueFencedError, NotAStoreError, QueueNotFoundError
    """
    there, options = _place(location, replica_options)
    return _replication.replicate(Store.at(store, storage_options), queue, there, options=options)


def replicas(
    store: StorePath,
    queue: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    replica_options: Mapping[str, str] | None = None,
) -> list[ReplicaStatus]:
    """How far behind each replica of a queue is (S7).

    Parameters
    ----------
    replica_options : dict, optional
        Storage options of the replicas' stores. Without them, the options of `store` are used if both are object stores.
    """
    return _replicas.status(Store.at(store, storage_options), queue, replica_options)


def remove_replica(
    store: StorePath,
    queue: str,
    location: StorePath,
    *,
    force: bool = False,
    storage_options: Mapping[str, str] | None = None,
    replica_options: Mapping[str, str] | None = None,
) -> None:
    """Stop keeping a replica of a queue in another store. The files there stay.

    Parameters
    ----------
    location : path or Store
        The other store.
    force : bool
        Remove the replica also if its store cannot be reached; in this case the replica may have been promoted.

    Raises
    ------
    ReplicaError
        If the queue has no such replica, or the replica was promoted or may have been promoted.
    """
    arguments.truth("force", force)
    there, options = _place(location, replica_options)
    _removal.remove_replica(Store.at(store, storage_options), queue, there, force=force, options=options)


def promote(
    store: StorePath,
    queue: str,
    *,
    force: bool = False,
    storage_options: Mapping[str, str] | None = None,
    primary_options: Mapping[str, str] | None = None,
) -> Promotion:
    """Make the replica of a queue in this store the queue that producers and consumers use (S7).

    If the primary can be reached, it is fenced first, and the messages that the replica still lacks are copied. If it cannot be
    reached from here, it counts as lost, also without `force`, and these messages are missing. Groups go on from their acknowledged
    positions; without the primary, messages that were acknowledged after the last pass come again. Start consumers with new checkpoints
    and the same groups: former checkpoints are refused, as their offsets may name other messages now. Producers keep their checkpoints
    and sink ids.

    Parameters
    ----------
    force : bool
        Promote although the primary exists but cannot be fenced or copied, or although the replica was removed and its primary is
        lost. Also cancel a promotion of another replica that has not ended.
    primary_options : dict, optional
        Storage options of the primary's store. Without them, the options of `store` are used if both are object stores.

    Raises
    ------
    ReplicaError
        If the queue in this store is no replica, was promoted already, or has never been complete; or if another replica has taken
        over.
    """
    arguments.truth("force", force)
    return _promotion.promote(Store.at(store, storage_options), queue, force=force, options=primary_options)


def _place(location: StorePath, options: Mapping[str, str] | None) -> tuple[str, Mapping[str, str] | None]:
    """The path of the other store and its options; a `Store` has its own options."""
    other = Store.at(location, options)
    return other.uri, other.storage_options if isinstance(location, Store) else options
