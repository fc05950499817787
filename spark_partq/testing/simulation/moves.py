"""Users go on with a copy that was promoted, or with a primary that was put back: what an oracle knows then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_partq.testing.simulation.setup import PRIMARY
from spark_partq.testing.simulation.stored import StoredQueue, hashes_of_keys

if TYPE_CHECKING:
    from spark_partq.testing.simulation.oracle import Oracle


def promoted(oracle: Oracle, uri: str, lost: bool) -> None:
    """Users go on with another store. If the one of before is lost, nobody knows of a group that had attached to the queue since."""
    stored, before = oracle.queues[uri, "q"], oracle.queues[PRIMARY, "q"]
    oracle.live, oracle.is_lost = uri, lost
    oracle.lost = before.places.keys() - stored.places.keys() if lost else set()
    attached = stored.state.groups if stored.state is not None else {}
    missing = [oracle.sent[id_] for id_ in oracle.lost]
    for group, reader in oracle.readers.items():
        ends = {n: min(end, len(log.ids)) for n, log in stored.partitions.items() if (end := reader.ends.get(n))}
        put_aside = oracle.dead.left_out_of.get(group, set())
        reader.moved(ends if group in attached or not lost else {}, before, stored, missing, put_aside)
    oracle.dead.held = _held(oracle, uri, stored)


def _held(oracle: Oracle, uri: str, stored: StoredQueue) -> dict[str, set[str]]:
    """By group the keys that are held there, as far as its history was copied."""
    if stored.state is None:
        return {}
    queue_id = stored.state.queue_id
    hashes = hashes_of_keys(stored.state, {message.key for message in oracle.sent.values()})
    return {
        group: {key for key, hash_ in hashes.items() if hash_ in state.held.get(queue_id, ())}
        for (place, group), state in oracle.groups.items()
        if place == uri
    }


def put_back(oracle: Oracle, queues: dict[tuple[str, str], StoredQueue]) -> None:
    """The primary is what it was; nobody is promised any more what came since."""
    oracle.queues |= queues
    oracle.lives.put_back(PRIMARY)
    oracle.batches.forget(PRIMARY)
    oracle.batches.added(PRIMARY, oracle.queues[PRIMARY, "q"].places)
    oracle.promised &= oracle.queues[PRIMARY, "q"].places.keys() | oracle.removed
