"""The hash by which Kafka's default partitioner places a key: MurmurHash2 of its bytes, 32 bits, with Kafka's seed.

`storage.murmur2` computes the same of many keys at once.
"""

from __future__ import annotations

SEED = 0x9747B28C
FACTOR = 0x5BD1E995
WORD = 4  # bytes
POSITIVE = 0x7FFFFFFF
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash as an unsigned 32-bit integer.

    Examples
    --------
    >>> murmur2(b"foobar") - 2**32
    -790332482
    """
    state = SEED ^ len(key)
    words = len(key) // WORD * WORD
    for at in range(0, words, WORD):
        word = int.from_bytes(key[at : at + WORD], "little") * FACTOR & _MASK
        word = (word ^ word >> 24) * FACTOR & _MASK
        state = state * FACTOR & _MASK ^ word
    if words < len(key):
        state = (state ^ int.from_bytes(key[words:], "little")) * FACTOR & _MASK
    state = (state ^ state >> 13) * FACTOR & _MASK
    return state ^ state >> 15


def positive_murmur2(key: bytes) -> int:
    """The hash without its highest bit, 0 to 2^31 - 1: Kafka takes its remainder by the partition count."""
    return murmur2(key) & POSITIVE
