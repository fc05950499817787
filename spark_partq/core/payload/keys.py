"""Which partition a key belongs to (Q2).

By the hash `xxhash64`, which a queue has unless it was created with another one (`HASHES`),

    partition = pmod(xxhash64(column 1, column 2, …; seed 42), N)

This is Spark's ``xxhash64``: XXH64 with seed 42 over the first column, then each further column hashed with
the result so far as its seed. A null leaves the seed as it is. What is hashed of a value:

    boolean                               1 or 0 as a 4-byte integer
    byte, short, int, date (days)         4-byte little-endian integer
    long, timestamp(_ntz) (microseconds)  8-byte little-endian integer
    float, double                         the 4 or 8 bytes of its IEEE form; -0.0 as 0.0, any NaN as the canonical one
    decimal(p <= 18, s)                   its unscaled value as a long
    decimal(p > 18, s)                    the shortest big-endian two's complement of its unscaled value
    string, binary                        its (UTF-8) bytes
    array, struct                         its elements, one after the other

so that any language with XXH64 can place a key. Golden vectors: tests/core/payload/test_keys.py.

By the hash `murmur2` a key of one string or binary column goes where Kafka's default partitioner puts the same bytes (`core.payload.murmur2`).
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Literal, get_args

import xxhash

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.payload.murmur2 import positive_murmur2
from spark_partq.core.payload.schema import type_name

KeyHash = Literal["xxhash64", "murmur2"]
HASHES: tuple[KeyHash, ...] = get_args(KeyHash)
DEFAULT_HASH: KeyHash = "xxhash64"
_MURMUR2_TYPES = "string", "binary"
_WHOLE = {"byte": "<b", "short": "<h", "integer": "<i"}

SEED = 42
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MASK = (1 << 64) - 1
_WIDE = Context(prec=80)  # the default context would round a decimal(38)


def partition_of(
    values: Sequence[Any], types: Sequence[Any], partitions: int, hash: KeyHash = DEFAULT_HASH
) -> int | None:
    """The partition of a key, or None for the null key (every column null), which is spread (Q3).

    Parameters
    ----------
    values : sequence
        One Python value per key column: int, str, bytes, bool, float, Decimal, date, datetime, list, dict (struct).
    types : sequence
        The columns' types in Spark's JSON form, for example ``["string", "long"]``.
    partitions : int
        N, the queue's partition count.
    hash : str, optional
        The queue's `key_hash`.

    Raises
    ------
    InvalidArgumentError
        If a value does not fit its type, or a key of these types cannot have that hash.

    Examples
    --------
    >>> partition_of(["N14228"], ["string"], 8)
    5
    >>> partition_of(["N14228"], ["string"], 8, "murmur2")
    0
    >>> partition_of([None], ["string"], 8) is None
    True
    """
    check_hash(hash, types)
    if all(v is None for v in values):
        return None
    return (murmur2_hash(values, types) if hash == "murmur2" else key_hash(values, types)) % partitions


def check_hash(hash: str, types: Sequence[Any], key: Sequence[str] = ()) -> KeyHash:
    """The hash, if a key of these types can have it.

    Parameters
    ----------
    key : sequence of str
        Names of the columns, for the error.

    Raises
    ------
    InvalidArgumentError
    """
    if hash not in HASHES:
        raise InvalidArgumentError(
            f"key_hash={hash!r}: a queue places its keys by one of {', '.join(HASHES)}", key_hash=hash
        )
    if hash == "murmur2" and (len(types) != 1 or types[0] not in _MURMUR2_TYPES):
        named = [f"{name} " for name in key] or [""] * len(types)
        found = ", ".join(f"{name}{type_name(type_)}" for name, type_ in zip(named, types, strict=True)) or "no column"
        raise InvalidArgumentError(
            f"key_hash='murmur2' places the bytes of a key as Kafka does, so the key is one column of type string or binary; here it is "
            f"{found}. Use such a key, or key_hash={DEFAULT_HASH!r}",
            key_hash=hash,
            key=found,
        )
    return hash


def murmur2_hash(values: Sequence[Any], types: Sequence[Any]) -> int:
    """Kafka's hash of a key of one string or binary column, 0 to 2^31 - 1.

    Raises
    ------
    InvalidArgumentError
        If the value does not fit its type.
    """
    (value,), (type_,) = _same_length(values, types)
    return positive_murmur2(_checked_bytes(value, type_))


def key_hash(values: Sequence[Any], types: Sequence[Any], seed: int = SEED) -> int:
    """Spark's ``xxhash64`` of these values, as a signed 64-bit integer.

    Raises
    ------
    InvalidArgumentError
        If a value does not fit its type.
    """
    _same_length(values, types)
    state = seed & _MASK
    for value, type_ in zip(values, types, strict=True):
        state = _hash(value, type_, state)
    return state - (1 << 64) if state >> 63 else state


def _same_length(values: Sequence[Any], types: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    if len(values) != len(types):
        raise InvalidArgumentError(f"the key has {len(types)} columns, {len(values)} values were given")
    return values, types


def _hash(value: Any, type_: Any, seed: int) -> int:
    if value is None:
        return seed
    if isinstance(type_, str):
        return xxhash.xxh64_intdigest(_checked_bytes(value, type_), seed)
    match type_:
        case {"type": "array", "elementType": of} if isinstance(value, Sequence):
            for element in value:
                seed = _hash(element, of, seed)
            return seed
        case {"type": "struct", "fields": fields} if isinstance(value, Mapping) and _names(fields) == set(value):
            for field in fields:
                seed = _hash(value[field["name"]], field["type"], seed)
            return seed
    raise InvalidArgumentError(
        f"{value!r} cannot be hashed as a value of the type {type_!r}", value=repr(value), type=repr(type_)
    )


def _names(fields: Any) -> set[str] | None:
    """The names of a struct's fields; None if the fields are not those of a type in Spark's JSON form."""
    is_whole = isinstance(fields, list) and all(isinstance(f, dict) and {"name", "type"} <= f.keys() for f in fields)
    return {field["name"] for field in fields} if is_whole else None


def _checked_bytes(value: Any, type_: Any) -> bytes:
    try:
        return _bytes(value, type_)
    except (TypeError, AttributeError, struct.error, ValueError, ArithmeticError) as error:
        raise InvalidArgumentError(f"{value!r} is not a {type_}: {error}", value=repr(value), type=type_) from None


def _bytes(value: Any, type_: str) -> bytes:
    match type_:
        case "string":
            return bytes(value.encode("utf-8"))
        case "binary":
            return bytes(memoryview(value))
        case "boolean":
            if value not in (True, False):
                raise ValueError("it is neither True nor False")
            return struct.pack("<i", 1 if value else 0)
        case "byte" | "short" | "integer":
            struct.pack(_WHOLE[type_], value)  # refuses what is out of range
            return struct.pack("<i", value)
        case "long":
            return struct.pack("<q", value)
        case "date":
            return struct.pack("<i", (value - _EPOCH.date()).days)
        case "timestamp":
            return struct.pack("<q", _micros(value.astimezone(dt.UTC) - _EPOCH))
        case "timestamp_ntz":
            return struct.pack("<q", _micros(value.replace(tzinfo=dt.UTC) - _EPOCH))
        case "float":
            return struct.pack("<f", _canonical(value))
        case "double":
            return struct.pack("<d", _canonical(value))
        case _ if type_.startswith("decimal("):
            precision, scale = map(int, type_[8:-1].split(","))
            scaled = Decimal(value).scaleb(scale, context=_WIDE)
            unscaled = int(scaled)
            if scaled != unscaled or abs(unscaled) >= 10**precision:
                raise ValueError("it has too many digits")
            if precision <= 18:
                return struct.pack("<q", unscaled)
            bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length() + 1  # with the sign
            return unscaled.to_bytes((bits + 7) // 8, "big", signed=True)
        case _:
            raise ValueError("no key can have this type")


def _micros(delta: dt.timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _canonical(value: float) -> float:
    return math.nan if math.isnan(value) else value + 0.0  # -0.0 + 0.0 is 0.0
