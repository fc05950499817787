"""Where a group shall go on when a person sets its positions, in the form in which users write it."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_partq.core.delivery.offsets import EARLIEST, LATEST, JsonOffsets, parse_offsets
from spark_partq.core.errors import InvalidArgumentError, OffsetOutOfRangeError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# The form of Java's Duration, and so of Kafka's --by-duration: days are 24 hours, each part may have a sign.
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d{1,9})D)?(?:T(?=[-+\d])(?:([-+]?\d{1,9})H)?(?:([-+]?\d{1,9})M)?(?:([-+]?\d{1,9}(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS = 86_400, 3_600, 60, 1
_FORMS = "earliest, latest, time:2026-11-01T00:00:00Z, by:P1D (one day back), {queue: {partition: offset}}"


@dataclass(frozen=True)
class Goal:
    """Where the positions go.

    Attributes
    ----------
    text : str
        What was asked for, in words for people.
    everywhere : int or None
        `EARLIEST` or `LATEST`, for every partition.
    since_us : int or None
        The first message that was enqueued at this time or later (microseconds since 1970); the end of a partition that has no such
        message.
    back_us : int or None
        The same, for a time this long before now (microseconds).
    offsets : dict
        For each named queue and partition, the offset, `EARLIEST` or `LATEST`.
    """

    text: str
    everywhere: int | None = None
    since_us: int | None = None
    back_us: int | None = None
    offsets: JsonOffsets | None = None

    def at(self, now_us: int) -> int | None:
        """The time from which on messages are wanted (microseconds since 1970); None if no time was asked for."""
        return self.since_us if self.back_us is None else now_us - self.back_us

    def offset(self, queue: str, partition: int) -> int | None:
        """The wanted position of a partition, if no time was asked for: an offset, `EARLIEST` or `LATEST`; None if the position stays."""
        return self.everywhere if self.offsets is None else self.offsets.get(queue, {}).get(partition)


def parse_goal(to: object, partitions: Mapping[str, range]) -> Goal:
    """Read where the positions go.

    Parameters
    ----------
    to : str or dict
        ``earliest``, ``latest``, ``time:`` with a time of ISO 8601 (UTC if it names no zone), ``by:`` with a duration of ISO 8601 before
        now, or ``{"orders": {3: 120}}``, also as JSON: an offset is that of the next message, -2 is earliest, -1 latest.
    partitions : dict
        For each queue that is meant, the numbers of its partitions.

    Raises
    ------
    InvalidArgumentError
        If `to` is none of these, or names a queue or partition that is not meant.

    Examples
    --------
    >>> parse_goal("by:P1DT12H", {}).back_us == 36 * 3_600 * 10**6
    True
    >>> parse_goal({"orders": {3: 120}}, {"orders": range(4)}).offset("orders", 3)
    120
    """
    if isinstance(to, Mapping):
        return _offsets(_as_json(to), partitions)
    text = to.strip() if isinstance(to, str) else ""
    kind, _, rest = text.partition(":")
    match kind.lower():
        case "earliest" | "latest" if not rest:
            return Goal(text.lower(), everywhere=EARLIEST if kind.lower() == "earliest" else LATEST)
        case "time":
            return Goal(text, since_us=_time(rest))
        case "by":
            return Goal(text, back_us=_duration(rest))
    if text.startswith("{"):
        return _offsets(text, partitions)
    raise InvalidArgumentError(f"to={to!r} is none of {_FORMS}", to=to)


def _as_json(to: Mapping[Any, Any]) -> str:
    try:
        return json.dumps({queue: {str(n): offset for n, offset in of.items()} for queue, of in to.items()})
    except (TypeError, ValueError, AttributeError):
        raise InvalidArgumentError(f"to={to!r} is none of {_FORMS}", to=to) from None


def _offsets(text: str, partitions: Mapping[str, range]) -> Goal:
    offsets = parse_offsets("to", text, partitions)
    if isinstance(offsets, int) or not any(offsets.values()):
        raise InvalidArgumentError(f"to={text} names no partition; it is none of {_FORMS}", to=text)
    return Goal(json.dumps(offsets), offsets=offsets)


def _time(text: str) -> int:
    try:
        time = dt.datetime.fromisoformat(text.strip())
        zoned = time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
        return (zoned - _EPOCH) // dt.timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise InvalidArgumentError(
            f"to=time:{text}: that is no time of ISO 8601 such as 2026-11-01T00:00:00Z", to=f"time:{text}"
        ) from None


def _duration(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()[1:]):
        raise InvalidArgumentError(
            f"to=by:{text}: that is no duration of ISO 8601 such as P1D, PT12H or PT90S", to=f"by:{text}"
        )
    parts = [float((part or "0").replace(",", ".")) for part in found.groups()[1:]]
    seconds = sum(part * length for part, length in zip(parts, _SECONDS, strict=True))
    return round(seconds * 10**6) * (-1 if found[1] == "-" else 1)


def within(requested: int, first: int, end: int, queue: str, partition: int) -> int:
    """The offset that is meant in a partition that holds ``[first, end)``.

    Raises
    ------
    OffsetOutOfRangeError
        If the offset lies beyond the end, or before the first message that is left.
    """
    if requested in (EARLIEST, LATEST):
        return first if requested == EARLIEST else end
    if not first <= requested <= end:
        why = f"it ends at {end}" if requested > end else f"messages below {first} were removed"
        raise OffsetOutOfRangeError(
            f"partition {partition} of queue {queue!r} cannot be set to offset {requested}: {why}; use {first} to {end}, or -2 for the "
            "first message and -1 for the end. Nothing was changed",
            queue=queue,
            partition=partition,
            offset=requested,
            first=first,
            end=end,
        )
    return requested
