"""Keys that a group holds back: a message of the key is dead, and later messages of the key go to the dead-message queue, too, in their order.

A key is known by its `xxhash64`, whichever hash places it. Two keys with the same hash are held together, which does no harm to their
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_partq.core import stored
from spark_partq.core.errors import KeysHeldError

# The most keys that a group may hold in a queue. Each key is in every snapshot of the group, and all planned messages are searched for
# it.
MOST = 1_000

_LEAST_HASH, _MOST_HASH = -(1 << 63), (1 << 63) - 1


def check_room(keys: frozenset[int], queue: str) -> None:
    """
    Raises
    ------
    KeysHeldError
        If these are more keys than a group can hold back.
    """
    if len(keys) > MOST:
        raise KeysHeldError(
            f"messages of more than {MOST:,} keys of queue {queue!r} are dead, and dead_letter_order='hold' holds back no more keys. See "
            "with `spark-partq dead-letter list` why they fail. To go on without the order of these keys, set dead_letter_order='skip'",
            queue=queue,
        )


def withheld(keys: frozenset[int], dead_letter_order: str) -> frozenset[int]:
    """The keys of which no message is delivered, of those that a group holds: none once the queue does not keep the order of dead messages."""
    return frozenset() if dead_letter_order == "skip" else keys


def body(keys: frozenset[int]) -> dict[str, Any]:
    """The part of a fact's body about the keys that it holds back."""
    return {"holds": sorted(keys)} if keys else {}


def held_by(body: Mapping[str, Any]) -> frozenset[int]:
    """Read back `body`.

    Raises
    ------
    ValueError
    """
    return parse(body.get("holds", []))


def parse(keys: object) -> frozenset[int]:
    """Read a list of hashes.

    Raises
    ------
    ValueError
        If it is no list of hashes, or too long.
    """
    if not isinstance(keys, list) or len(keys) > MOST:
        raise ValueError("held keys are no list of hashes")
    return frozenset(stored.whole(key, "hash", _LEAST_HASH, _MOST_HASH) for key in keys)
