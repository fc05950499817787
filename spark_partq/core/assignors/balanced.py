"""What balanced means (R1), and the `balanced` assignor in its simplest form: one queue, flows of one weight (R6).

Backlog, load and age do not count. The result is balanced (every flow has the same number of partitions, plus or minus
one) and moves as few partitions as that needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from spark_partq.core.assignors.homogeneous import assign_homogeneous
from spark_partq.core.assignors.model import NOBODY

P = TypeVar("P")


def balanced(current: Mapping[P, str | None], flows: Sequence[str]) -> dict[P, str]:
    """Who shall own each partition.

    Parameters
    ----------
    current : dict
        Partition to its flow. None, and a flow that is not in `flows`, mean that it has no owner. Partitions are assigned in this
        order; the last ones of a flow are those that move.
    flows : list of str
        Ties are decided in their order.

    Returns
    -------
    dict
        Partition to flow, in the order of `current`; empty if there are no flows.

    Examples
    --------
    Seven partitions, three flows and a fourth that has just come:

    >>> had = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c", 6: "a"}
    >>> balanced(had, ["a", "b", "c", "d"])
    {0: 'a', 1: 'b', 2: 'c', 3: 'a', 4: 'b', 5: 'c', 6: 'd'}
    """
    if not flows:
        return {}
    rank = {flow: i for i, flow in enumerate(flows)}
    owners = np.fromiter((NOBODY if flow is None else rank.get(flow, NOBODY) for flow in current.values()), np.int32)
    return {
        partition: flows[i]
        for partition, i in zip(current, assign_homogeneous(owners, len(flows)).tolist(), strict=True)
    }


def is_balanced(current: Mapping[P, str | None], flows: Sequence[str]) -> bool:
    """Whether every partition has one of `flows`, each the same number plus or minus one."""
    loads = dict.fromkeys(flows, 0)
    for flow in current.values():
        if flow not in loads:
            return not flows
        loads[flow] += 1
    return not loads or max(loads.values()) - min(loads.values()) <= 1
