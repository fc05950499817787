"""The `balanced` assignor (R6): steps 2 to 6 of partition rebalancing in partitioned queues.

Depth, load and age are not considered. The result is balanced (every flow has the same number of partitions, plus or minus
one) and moves as few partitions as that needs.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TypeVar

P = TypeVar("P")


def balanced(current: Mapping[P, str | None], flows: Sequence[str]) -> dict[P, str]:
    """Who shall own each partition.

    Parameters
    ----------
    current : dict
        Partition to its flow. None, and a flow that is not in `flows`, mean that it needs one. Its order is that in which
        partitions are given out; the last ones of a flow are those that move.
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
    owned: dict[str, list[P]] = {flow: [] for flow in flows}
    for partition, flow in current.items():
        if flow in owned:
            owned[flow].append(partition)
    fewest = [(len(mine), rank[flow]) for flow, mine in owned.items()]
    heapq.heapify(fewest)
    for partition, flow in current.items():  # step 2: new partitions go to the flows with the fewest
        if flow not in owned:
            count, i = fewest[0]
            owned[flows[i]].append(partition)
            heapq.heapreplace(fewest, (count + 1, i))
    most = [(-len(mine), rank[flow]) for flow, mine in owned.items()]
    heapq.heapify(most)
    while -most[0][0] - fewest[0][0] > 1:  # steps 4 to 6: one partition from the most loaded to the least
        taken, i = heapq.heappop(most)
        given, j = heapq.heappop(fewest)
        # Each heap holds what its own side does: a flow that gives was never among the fewest, nor the other way round.
        owned[flows[j]].append(owned[flows[i]].pop())
        heapq.heappush(most, (taken + 1, i))
        heapq.heappush(fewest, (given + 1, j))
    target = {partition: flow for flow, mine in owned.items() for partition in mine}
    return {partition: target[partition] for partition in current}


def is_balanced(current: Mapping[P, str | None], flows: Sequence[str]) -> bool:
    """Whether every partition has one of `flows`, each the same number plus or minus one."""
    loads = dict.fromkeys(flows, 0)
    for flow in current.values():
        if flow not in loads:
            return not flows
        loads[flow] += 1
    return not loads or max(loads.values()) - min(loads.values()) <= 1
