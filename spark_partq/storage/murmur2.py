"""Kafka's hash of many keys at once: `core.payload.murmur2`, over Arrow's buffers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_partq.core.payload.murmur2 import FACTOR, POSITIVE, SEED, WORD, positive_murmur2

# Keys of which fewer have a further word are hashed one by one: an operation on an array costs as much as some keys.
_FEW = 16


def positive_murmur2s(keys: pa.Array) -> NDArray[np.int64]:
    """The hash of each key, 0 to 2^31 - 1; any number where it is null.

    Parameters
    ----------
    keys : Arrow array
        Of type string or binary; what is hashed are the bytes.
    """
    data, starts, lengths = _bytes_of(keys)
    words = lengths // WORD
    state = lengths.astype(np.uint32) ^ np.uint32(SEED)
    rows = np.argsort(-words, kind="stable")  # those that have a further word are always the first ones
    having = np.searchsorted(-words[rows], -np.arange(1, int(words.max(initial=0)) + 1), side="right")
    vectorised = np.flatnonzero(having <= _FEW)
    steps = int(vectorised[0]) if len(vectorised) else len(having)
    for step in range(steps):
        some = rows[: having[step]]
        word = _word(data, starts[some] + step * WORD, WORD) * np.uint32(FACTOR)
        word = (word ^ (word >> np.uint32(24))) * np.uint32(FACTOR)
        state[some] = (state[some] * np.uint32(FACTOR)) ^ word
    for left in (1, 2, 3):
        some = np.flatnonzero(lengths % WORD == left)
        if len(some):
            rest = _word(data, starts[some] + words[some] * WORD, left)
            state[some] = (state[some] ^ rest) * np.uint32(FACTOR)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(FACTOR)
    hashes = ((state ^ (state >> np.uint32(15))) & np.uint32(POSITIVE)).astype(np.int64)
    for row in rows[: having[steps]] if steps < len(having) else ():
        hashes[row] = positive_murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return hashes


def _bytes_of(keys: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """All bytes, and of each key where they begin and how many they are; none of a null."""
    large = keys.cast(pa.large_binary())  # offsets of one width, and no look at whether a string is valid
    _, offsets, content = large.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(large) + 1, large.offset * 8) if len(large) else np.zeros(1, np.int64)
    data = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(0, np.uint8)
    lengths = np.diff(bounds)
    if large.null_count:
        lengths[large.is_null().to_numpy(zero_copy_only=False)] = 0
    return data, bounds[:-1], lengths


def _word(data: NDArray[np.uint8], at: NDArray[np.int64], size: int) -> NDArray[np.uint32]:
    """The little-endian number of so many bytes from each of these places on."""
    number = data[at].astype(np.uint32)
    for i in range(1, size):
        number |= data[at + i].astype(np.uint32) << np.uint32(8 * i)
    return number
