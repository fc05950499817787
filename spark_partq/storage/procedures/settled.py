"""What groups have settled in a queue, measured so that no reset of their positions comes between (Q8, S2)."""

from __future__ import annotations

from spark_partq.core.group.events import VoidResets
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.backlog import groups
from spark_partq.storage.queue.handle import Queue


def settled_groups(queue: Queue) -> list[Group]:
    """The groups that are attached, as of the queue's last refresh.

    Resets that were announced by then and are not made yet become void. A reset that is announced later makes a commit fail that relies
    on this result.
    """
    found = groups(queue)
    for group in found:
        announced = queue.state.resets.get(group.name, 0)
        if group.state.resets < announced:
            group.decide(lambda announced=announced: [VoidResets(announced)], "maintenance")  # type: ignore[misc]
    return found
