"""How often messages were delivered without being acknowledged, and what follows: a few at a time, and in the end none (dead messages).

An *attempt* is a range of offsets and the number of its delivery, 1 for the first. It is durable before the range is delivered, so it
outlives whoever the messages kill.
"""

from __future__ import annotations

from collections.abc import Mapping

# What was delivered too often is given in pieces of one of so many.
PIECES = 8

Attempts = Mapping[tuple[int, int], int]  # range of offsets -> the number of its last delivery
Attempt = tuple[int, int]  # the epoch and the number of a delivery


def deliveries(attempts: Attempts, delivered: int, offset: int) -> tuple[int, int]:
    """How often a message was delivered, and the offset up to which that holds for all.

    Parameters
    ----------
    delivered : int
        Exclusive end of the messages that anybody may have delivered; what was not counted was delivered once.

    Examples
    --------
    >>> deliveries({(0, 100): 3, (0, 10): 4}, 200, 5)
    (4, 10)
    >>> deliveries({(0, 100): 3, (0, 10): 4}, 200, 10)
    (3, 100)
    >>> deliveries({}, 200, 150)
    (1, 200)
    """
    covering = [number for (start, end), number in attempts.items() if start <= offset < end]
    bounds = [bound for range_ in attempts for bound in range_ if bound > offset]
    if delivered > offset:
        return max([1, *covering]), min([delivered, *bounds])
    return 0, min(bounds, default=offset)


def is_suspect(attempts: Attempts, delivered: int, offset: int, max_deliveries: int) -> bool:
    """Whether a message, or one that was delivered with it, must be at fault: it was delivered all but one of the times that it may be.

    From now on it comes in a micro-batch that holds nothing else. With `max_deliveries` of 1 that is a second delivery.
    """
    return deliveries(attempts, delivered, offset)[0] >= max(1, max_deliveries - 1)


def piece(attempts: Attempts, delivered: int, start: int, end: int, max_deliveries: int) -> int:
    """The end of what is to be given of ``[start, end)``.

    Messages that were delivered before are not mixed with others, so that a delivery has one number. What is suspect is given in pieces,
    until the message is found that nobody can process.
    """
    number, same_until = deliveries(attempts, delivered, start)
    if number == 0:
        return end
    if is_suspect(attempts, delivered, start, max_deliveries):
        same_until = min(same_until, start + max(1, (same_until - start) // PIECES))
    return min(end, same_until)


def is_dead(attempts: Attempts, offset: int, max_deliveries: int) -> bool:
    """Whether a message was delivered too often, the last time alone: it is its own fault."""
    return attempts.get((offset, offset + 1), 0) > max(1, max_deliveries - 1)


def needed(attempts: Mapping[tuple[int, int], Attempt], position: int) -> dict[tuple[int, int], Attempt]:
    """Those that still say something of messages at or above the position, and that no other one says as well.

    Not first deliveries: who knows up to where messages were delivered knows of these. One under an earlier epoch does not speak for one under
    a later epoch, as a reset lies between them perhaps, from which on it counts no more.
    """
    left = {range_: attempt for range_, attempt in attempts.items() if range_[1] > position and attempt[1] > 1}
    return {
        (start, end): (epoch, number)
        for (start, end), (epoch, number) in left.items()
        if not any(
            (s, e) != (start, end) and s <= start and end <= e and under >= epoch and n >= number and end - start > 1
            for (s, e), (under, n) in left.items()
        )
    }
