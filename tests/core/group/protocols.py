"""Groups under one assignor or another, as tests of the protocols begin with them."""

from __future__ import annotations

import json

from spark_partq.core.group.facts import Kind, Status
from tests.core.group.groups import Decided

RANGE, STICKY = ("range",), ("sticky",)
COMPUTED = Kind.ASSIGNMENT_COMPUTED


def computed(group: Decided) -> list[tuple[str, str]]:
    """Assignor and protocol of the assignments that the last decision computed."""
    bodies = [json.loads(fact.body or "") for fact in group.facts if fact.kind == COMPUTED]
    return [(body["assignor"], body["protocol"]) for body in bodies]


def eager(*names: str, assignors: tuple[str, ...] = RANGE, delay_ms: int = 0, **options: int) -> Decided:
    """A group on 6 partitions whose members have come one after the other, and that is Ready."""
    group = Decided(6, delay_ms, **options)
    for name in names:
        group.join(name, assignors=assignors)
        settle(group)
    return group


def settle(group: Decided) -> None:
    """The holddown ends, and everybody gives up what drains."""
    group.over()
    if group.draining():
        group.release()
    assert group.state.status is Status.READY


def revoking(*names: str, assignors: tuple[str, ...] = RANGE) -> Decided:
    """Everything is being revoked, as the last of these has joined."""
    group = eager(*names[:-1], assignors=assignors)
    group.join(names[-1], assignors=assignors)
    assert group.state.revoking
    return group


def two_queues() -> Decided:
    """a reads orders (4), b reads orders and returns (2), c reads returns."""
    group = Decided(4, 1_000)
    group.queue_named("returns", 2)
    for name, queues in (("a", ("orders",)), ("b", ("orders", "returns")), ("c", ("returns",))):
        group.join(name, queues=queues)
        settle(group)
    return group
