"""How many partitions and flows a rate of messages needs: a model of micro-batches, fitted to what a run measured.

**A micro-batch** of one query lasts `fixed_s + message_s * n` seconds. `n` is the number of messages of its busiest flow, the flow that
is given most messages: flows work side by side, and the micro-batch ends when the last flow ends. `batch_cost` fits both figures to
measured micro-batches.

**The busiest share** is the part of all messages that the busiest flow is given. It follows from the part of each partition (`Shares`) and from the
assignment: the model asks the assignor itself which flow gets which partition.

**From these** follows, for `rate` messages a second that come in evenly (`capacity`):

- One flow works `1 / message_s` messages a second, so all flows keep up with at most `1 / (message_s * busiest share)`. With
  `maxRowsPerTrigger` = `max_rows`, each `max_rows` messages pay `fixed_s` once: at most `max_rows / (fixed_s + message_s * busiest share * max_rows)`.
- While the flows keep up, a micro-batch takes the messages that came during the previous micro-batch. So its length settles where
  `length = fixed_s + message_s * busiest share * rate * length`.
- A message comes on average in the middle of a micro-batch, waits half of its length, and is in the next micro-batch: 1.5 lengths until that ends.
  If messages come so seldom that the flows are idle between them, they wait less: `fixed_s` and their own work.
- A depth of messages goes down by `most - rate` a second, and the last of these messages are in one more micro-batch.
  With `max_rows` and partitions of different depth it takes longer: a query shares `max_rows` evenly between partitions that have enough.
  So the flow with the most partitions may be the busiest first, and the flow with the heaviest partition later. `drain` simulates that.

**The model holds** while there are as many free cores as active flows, or the work waits for something else than a core; while every message costs
the same; and without a trigger interval that is longer than a micro-batch. In a group of several queries, each query has its own micro-batches,
and the query with the busiest flow determines the rate with which the group keeps up.
After rebalances the partitions may be shared otherwise than an assignor shares them at first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spark_partq.core.assignors.api import assign
from spark_partq.core.assignors.model import Member
from spark_partq.core.delivery import admission
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.payload.keys import DEFAULT_HASH, KeyHash, partition_of

CAPACITY = (
    "rate", "flows", "standbys", "busiest_share", "most_per_s", "utilisation", "keeps_up", "batch_s", "wait_s", "drain_s", "limited_by",
)  # fmt: skip
DRAIN = ("batch", "began_s", "ended_s", "waiting", "messages", "busiest", "depth")
DEFAULT_ASSIGNOR = "balanced"
_NEARLY = 0.8  # if one key is this part of the busiest flow's messages, another flow could take little from that flow
_MOST_BATCHES = 100_000
_NOTICEABLE = 1e-9


@dataclass(frozen=True)
class BatchCost:
    """What a micro-batch costs: `fixed_s` seconds, and `message_s` seconds for each message of its busiest flow.

    Raises
    ------
    InvalidArgumentError
        If `fixed_s` is negative, or `message_s` is not positive.
    """

    fixed_s: float
    message_s: float

    def __post_init__(self) -> None:
        _check("fixed_s", self.fixed_s)
        _check("message_s", self.message_s, above=True)

    def seconds(self, messages: float) -> float:
        """The length of a micro-batch whose busiest flow is given this number of messages."""
        return self.fixed_s + self.message_s * messages


@dataclass(frozen=True)
class Shares:
    """The part of all messages that each partition gets; all parts together are 1. `shares` and `observed_shares` make such an object.

    Attributes
    ----------
    partitions : tuple of float
        By partition number.
    heaviest_key : float or None
        The part of all messages that have the most frequent key; None if this part is not known.
    """

    partitions: tuple[float, ...]
    heaviest_key: float | None = None

    def __post_init__(self) -> None:
        for share in self.partitions:
            _check("shares", share)
        if not math.isclose(sum(self.partitions), 1, rel_tol=1e-6):
            raise InvalidArgumentError(
                f"the shares of all partitions must add up to 1, and these add up to {sum(self.partitions):g}; "
                "observed_shares computes shares from counts",
                shares=self.partitions,
            )

    def by_flow(self, flows: int, assignor: str = DEFAULT_ASSIGNOR) -> tuple[float, ...]:
        """The part of all messages that each flow gets when `flows` flows share the partitions."""
        owned = self.owned(flows, assignor)
        return tuple(math.fsum(self.partitions[number] for number in mine) for mine in owned)

    def owned(self, flows: int, assignor: str = DEFAULT_ASSIGNOR) -> list[list[int]]:
        """The partitions of each flow, as the assignor gives them to flows that start together.

        Raises
        ------
        InvalidArgumentError, UnknownAssignorError
        """
        _check_count("flows", flows)
        members = [Member(f"query/{number}", ["queue"]) for number in range(flows)]
        loads = {("queue", number): share for number, share in enumerate(self.partitions)}
        found = assign(assignor, members, {"queue": len(self.partitions)}, loads)
        return [[number for _, number in found[member.id]] for member in members]


def batch_cost(batches: pd.DataFrame) -> BatchCost:
    """Fit the cost of a micro-batch to measured micro-batches, by least squares; neither part becomes negative.

    Parameters
    ----------
    batches : DataFrame
        A row for each micro-batch: `seconds` that it lasted, `messages` that its busiest flow was given. Leave out the first micro-batch
        of a query, which also starts processes.

    Raises
    ------
    InvalidArgumentError
        A column is missing, there are no two sizes, or larger micro-batches did not last longer.
    """
    missing = [name for name in ("seconds", "messages") if name not in batches.columns]
    if missing:
        raise InvalidArgumentError(
            f"the measured micro-batches lack the column {missing[0]}; they have seconds and messages",
            column=missing[0],
        )
    seconds, messages = batches["seconds"].to_numpy(float), batches["messages"].to_numpy(float)
    for name, values in (("seconds", seconds), ("messages", messages)):
        for value in values:
            _check(name, value)
    if len(np.unique(messages)) < 2:
        raise InvalidArgumentError(
            "micro-batches of one size do not tell what a message costs and what a micro-batch costs; measure two sizes that differ much"
        )
    apart = messages - messages.mean()
    message_s = float(apart @ (seconds - seconds.mean()) / (apart @ apart))
    fixed_s = float(seconds.mean() - message_s * messages.mean())
    if fixed_s < 0:
        fixed_s, message_s = 0.0, float(messages @ seconds / (messages @ messages))
    if message_s <= 0:
        raise InvalidArgumentError(
            "the larger micro-batches did not last longer, so what a message costs is lost in the noise; measure larger ones"
        )
    return BatchCost(fixed_s, message_s)


def shares(
    weights: Mapping[Any, float],
    partitions: int,
    types: Sequence[Any] = ("string",),
    key_hash: KeyHash = DEFAULT_HASH,
) -> Shares:
    """The share of each partition, given how many messages each key has, by the hash with which the queue places keys.

    Parameters
    ----------
    weights : mapping or Series
        The number of messages of each key, in any unit; a key of several columns is a tuple. Messages without a key (None) are spread evenly.
    partitions : int
        The partition count to try.
    types : sequence
        The types of the key's columns in Spark's JSON form, such as ``["string", "long"]``.
    key_hash : str
        The queue's `key_hash`.

    Raises
    ------
    InvalidArgumentError
        No messages, a negative weight, or a key that does not fit its type.
    """
    _check_count("partitions", partitions)
    counts = np.zeros(partitions)
    heaviest = 0.0
    for key, weight in weights.items():
        _check("weights", weight)
        values = key if isinstance(key, tuple) else (key,)
        number = partition_of(values, types, partitions, key_hash)
        if number is None:
            counts += weight / partitions
        else:
            counts[number] += weight
            heaviest = max(heaviest, float(weight))
    found = observed_shares(counts)
    return Shares(found.partitions, heaviest / float(counts.sum()))


def observed_shares(counts: Iterable[float]) -> Shares:
    """The share of each partition, from the number of messages in each partition: all partitions, in the order of their numbers.

    Raises
    ------
    InvalidArgumentError
        No messages, or a negative count.
    """
    given = [float(count) for count in counts]
    for count in given:
        _check("counts", count)
    whole = math.fsum(given)
    if whole <= 0:
        raise InvalidArgumentError(
            "counts without messages give no shares: give the counts of a queue or of keys that have messages"
        )
    return Shares(tuple(count / whole for count in given))


def capacity(
    cost: BatchCost,
    shares: Shares,
    *,
    flows: int | Iterable[int],
    rate: float | Iterable[float],
    depth: float = 0,
    max_rows: int | None = None,
    assignor: str = DEFAULT_ASSIGNOR,
) -> pd.DataFrame:
    """What several numbers of flows would achieve at a rate of messages: a row for each number of flows and each rate.

    Parameters
    ----------
    flows : int or iterable of int
        Flows that share the queue's partitions.
    rate : float or iterable of float
        Messages per second that come in.
    depth : float
        Messages that wait at the beginning, spread over the partitions as all messages are.
    max_rows : int, optional
        The query's `maxRowsPerTrigger`.
    assignor : str
        As in the option `assignor`; `weighted` is told the shares as loads.

    Columns
    -------
    rate, flows : the rate and the number of flows that the row is about
    standbys : flows that get no partition
    busiest_share : part of all messages that the busiest flow is given
    most_per_s : messages per second that the flows keep up with
    utilisation : `rate` / `most_per_s`; from 1 on the depth grows without end
    keeps_up : whether `utilisation` is below 1
    batch_s : seconds that a micro-batch lasts when no depth waits any more; inf if a depth always waits
    wait_s : seconds from a message's arrival to the end of its micro-batch, on average
    drain_s
        Seconds until the depth is worked off. With `max_rows` and uneven shares this is about the least time that it takes; see `drain`.
    limited_by
        What to change to keep up with a higher rate. ``flows``: more flows make the busiest share smaller. ``partitions``: more flows do
        not, as there are no partitions left to share or one partition is too heavy; raise the partition count first.
        ``key``: one key is four fifths of the busiest flow's messages, or alone more than a flow can take. Flows cannot share a key, so
        only a finer key or cheaper messages help.

    Raises
    ------
    InvalidArgumentError, UnknownAssignorError
    """
    numbers = list(flows) if isinstance(flows, Iterable) else [flows]
    rates = list(rate) if isinstance(rate, Iterable) else [rate]
    _check("depth", depth)
    if max_rows is not None:
        _check_count("max_rows", max_rows)
    useful = range(1, len(shares.partitions) + 1)
    busiest = {number: max(shares.by_flow(number, assignor)) for number in {*numbers, *useful}}
    rows = []
    for each in rates:
        _check("rate", each)
        for number in numbers:
            share = busiest[number]
            most = _most_per_s(cost, share, max_rows)
            keeps_up = each < most
            batch_s = cost.fixed_s / (1 - each * share * cost.message_s) if keeps_up else math.inf
            drain_s = 0.0 if not depth else depth / (most - each) + batch_s if keeps_up else math.inf
            least = min((busiest[more] for more in useful if more > number), default=share)
            key = shares.heaviest_key
            stuck = key is not None and key > 0 and (key >= _NEARLY * share or each >= _most_per_s(cost, key, max_rows))
            limit = "key" if stuck else "flows" if least < share - _NOTICEABLE else "partitions"
            standbys = max(0, number - len(shares.partitions))
            times = keeps_up, batch_s, 1.5 * batch_s, drain_s
            rows.append((each, number, standbys, share, most, each / most, *times, limit))
    return pd.DataFrame(rows, columns=list(CAPACITY))


def drain(
    cost: BatchCost,
    shares: Shares,
    *,
    flows: int,
    rate: float,
    depth: int,
    max_rows: int | None = None,
    assignor: str = DEFAULT_ASSIGNOR,
) -> pd.DataFrame:
    """Simulate the micro-batches that work off a depth, one after the other: a row for each. The parameters are those of `capacity`.

    Each micro-batch takes the messages that are there when it begins, or `max_rows` of them, shared between partitions as a query shares them. The
    last micro-batch is the first that leaves no more messages than come in during one micro-batch when no depth waits any more.

    Columns
    -------
    batch : 0, 1, 2, …
    began_s, ended_s : seconds since the beginning
    waiting : messages that are there when the micro-batch begins
    messages : messages that the micro-batch took, of all flows
    busiest : messages of its busiest flow
    depth : messages that are there when the micro-batch has ended and that no micro-batch has taken

    Raises
    ------
    InvalidArgumentError
        If the flows do not keep up with `rate`, or keep up so narrowly that the drain takes more than 100,000 micro-batches.
    """
    about = capacity(cost, shares, flows=flows, rate=rate, depth=depth, max_rows=max_rows, assignor=assignor).iloc[0]
    if not about["keeps_up"]:
        raise InvalidArgumentError(
            f"at {rate:g} messages a second the depth is never worked off: with flows={flows} the most is {about['most_per_s']:g}",
            rate=rate,
        )
    part = np.array(shares.partitions)
    owned = shares.owned(flows, assignor)
    waiting = _whole(part * depth)
    settled = 1.1 * rate * float(about["batch_s"]) + len(part)  # one message per partition may be rounding
    now, came = 0.0, np.zeros(len(part), dtype=np.int64)
    rows: list[tuple[Any, ...]] = []
    while len(rows) < _MOST_BATCHES:
        taken = waiting if max_rows is None else admission.share(waiting, max_rows)
        busiest = max(int(taken[mine].sum()) for mine in owned)
        found, began, now = int(waiting.sum()), now, now + cost.seconds(busiest)
        come = np.floor(part * (rate * now)).astype(np.int64)
        waiting = waiting - taken + come - came
        came = come
        left = int(waiting.sum())
        rows.append((len(rows), began, now, found, int(taken.sum()), busiest, left))
        if left <= settled:
            return pd.DataFrame(rows, columns=list(DRAIN))
    raise InvalidArgumentError(
        f"the depth is not worked off after {_MOST_BATCHES:,} micro-batches: {rate:g} messages a second are too near to the most, {about['most_per_s']:g}",
        rate=rate,
    )


# ---- helpers
def _most_per_s(cost: BatchCost, share: float, max_rows: int | None) -> float:
    if max_rows is None:
        return 1 / (cost.message_s * share)
    return max_rows / cost.seconds(share * max_rows)


def _whole(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round the numbers so that each sum from the first number on is off by less than one: rounding loses no message."""
    return np.diff(np.floor(np.cumsum(numbers) + _NOTICEABLE), prepend=0).astype(np.int64)


def _check(name: str, value: Any, above: bool = False) -> None:
    if not math.isfinite(value) or value < 0 or (above and not value):
        wanted = "a positive number" if above else "a number from 0 on"
        raise InvalidArgumentError(f"{name}={value!r}: it must be {wanted}", **{name: value})


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InvalidArgumentError(f"{name}={value!r}: it must be a whole number of at least 1", **{name: value})
