"""How often messages were delivered without being acknowledged, and what follows: fewer at a time, and in the end none (dead messages).

An *attempt* is a range of offsets and the number of its delivery, 1 for the first. It is durable before the range is delivered, so it remains
when the messages kill the process.
"""

from __future__ import annotations

from collections.abc import Mapping

# Messages that were delivered too often are given in pieces; a piece is one part of this many.
PIECES = 8

Attempts = Mapping[tuple[int, int], int]  # range of offsets -> the number of its last delivery
Attempt = tuple[int, int]  # the epoch and the number of a delivery


def deliveries(attempts: Attempts, delivered: int, offset: int) -> tuple[int, int]:
    """How often a message was delivered, and the offset up to which this number holds for all messages.

    Parameters
    ----------
    delivered : int
        Exclusive end of the messages that any process may have delivered. Messages whose deliveries were not counted count as delivered once.

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
    """Whether a message, or one that was delivered with it, must be at fault: only one of the allowed deliveries is left.

    From now on it comes in a micro-batch that holds nothing else. With `max_deliveries` of 1 this is a second delivery.
    """
    return deliveries(attempts, delivered, offset)[0] >= max(1, max_deliveries - 1)


def piece(attempts: Attempts, delivered: int, start: int, end: int, max_deliveries: int) -> int:
    """The end of the piece of ``[start, end)`` that is given next.

    Messages that were delivered before are not mixed with others, so that a delivery has one number. Suspect messages are given in pieces,
    until the message is found that cannot be processed.
    """
    number, same_until = deliveries(attempts, delivered, start)
    if number == 0:
        return end
    if is_suspect(attempts, delivered, start, max_deliveries):
        same_until = min(same_until, start + max(1, (same_until - start) // PIECES))
    return min(end, same_until)


def is_dead(attempts: Attempts, offset: int, max_deliveries: int) -> bool:
    """Whether a message was delivered too often, and alone the last time: so the fault is its own."""
    return attempts.get((offset, offset + 1), 0) > max(1, max_deliveries - 1)


def needed(attempts: Mapping[tuple[int, int], Attempt], position: int) -> dict[tuple[int, int], Attempt]:
    """The attempts that still say something about messages at or above the position, and that no other attempt covers.

    First deliveries are not needed, as the end of the delivered messages tells of them. An attempt under an earlier epoch does not cover one
    under a later epoch: a reset may lie between the two, and after a reset the earlier attempt no longer counts.
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
