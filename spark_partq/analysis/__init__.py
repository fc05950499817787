"""What the history of a consumer group tells: which flow owned which partition when, how long handoffs took, what a killed consumer cost (U3).

`history` reads the facts. The other functions are pure: they take facts and return a DataFrame with one row for each thing that happened. The
times come from the clocks of the processes that decided the facts, so they include the differences between the hosts' clocks.

    from spark_partq import analysis, plots

    facts = analysis.history("store", "billing")
    analysis.handoffs(facts).groupby("outcome").length_ms.describe()
    plots.ownerships(facts)

`capacity` looks ahead instead: how many partitions and flows a rate of messages needs, computed from the measured cost of micro-batches.
"""

from __future__ import annotations

from spark_partq.analysis.capacity import (
    CAPACITY,
    DRAIN,
    BatchCost,
    Shares,
    batch_cost,
    capacity,
    drain,
    observed_shares,
    shares,
)
from spark_partq.analysis.changes import HANDOFFS, OWNERSHIPS, handoffs, ownerships, statuses
from spark_partq.analysis.departures import COSTS, costs
from spark_partq.analysis.over_time import lag, positions
from spark_partq.analysis.reading import acknowledgements, enqueued, history
from spark_partq.analysis.rebalances import MOVES, moves

__all__ = [
    "CAPACITY",
    "COSTS",
    "DRAIN",
    "HANDOFFS",
    "MOVES",
    "OWNERSHIPS",
    "BatchCost",
    "Shares",
    "acknowledgements",
    "batch_cost",
    "capacity",
    "costs",
    "drain",
    "enqueued",
    "handoffs",
    "history",
    "lag",
    "moves",
    "observed_shares",
    "ownerships",
    "positions",
    "shares",
    "statuses",
]
