"""What each role of SECURITY.md does with a store, in a process that has the rights of a user.

``python -m tests.security.roles``, started by root, reads from its standard input which role to play, as which user; one JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.inspect.watch import StoreWatch
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.replicate import replicate as sync
from spark_partq.storage.store import Store
from spark_partq.storage.upkeep import UPKEEP
from tests import queries
from tests.clocks import no_grace
from tests.scaled import Sink, messages

GROUPS = ("g", "other")


def make(store: Store) -> None:
    """A queue with messages of which each group has read all but the last five."""
    partq.create_queue(
        store, "q", "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=0
    )  # fmt: skip
    Sink(store, "first").write(0, messages(0, 20))
    for group in GROUPS:
        consume(store, group)
    Sink(store, "first").write(1, messages(20, 25))
    UPKEEP.wait()


def produce(store: Store, _: Store | None = None) -> int:
    sink = Sink(store, "mine")
    return sink.write(0, messages(20, 25)) + sink.write(1, messages(25, 30))


def consume(store: Store, group: str = "g") -> int:
    """So many messages it is given, and acknowledges."""
    before = acknowledged(store, group)
    planner = Planner(ConsumerSettings(store, ("q",)), group, "a")
    done, given = StreamOffset(group, "a", {}, {}), 0
    for _ in range(2):
        end = planner.next(done, Limits())
        if end is not None:
            given += sum(
                piece.slice.last_row - piece.slice.first_row for task in planner.tasks(done, end) for piece in task
            )
            done = end
    planner.leave()
    assert acknowledged(store, group) - before == given
    return given


def acknowledged(store: Store, group: str) -> int:
    found = Group(store, group)
    found.refresh_if_there()
    return sum(found.position(partition) or 0 for partition in found.state.partitions)


def read(store: Store, _: Store | None = None) -> int:
    rows = queries.read(store.uri, **{f"storageOptions.{name}": value for name, value in store.storage_options.items()})
    partq.describe_queue(store, "q")
    partq.describe_group(store, "g")
    sample = StoreWatch(store).look()
    assert not sample.failed and len(sample.groups) == len(GROUPS)
    assert partq.list_groups(store) == list(GROUPS) and not diagnose(store, None).faults
    return len(rows)


def maintain(store: Store, _: Store | None = None) -> int:
    with no_grace():  # files are deleted, too
        return partq.maintain(store)[0].removed_messages


def scale(store: Store, _: Store | None = None) -> int:
    partq.set_ingress(store, "q", False)
    partq.set_ingress(store, "q", True)
    assert partq.delete_messages(store, "q", {"k": "k3"})
    return partq.scale(store, "q", 3).configured_partitions


def administer(store: Store, _: Store | None = None) -> int:
    """So many queues are left: the new one, and not the one that is deleted."""
    partq.reset_offsets(store, "other", "earliest")
    partq.delete_group(store, "other")
    partq.create_queue(store, "new", "v bigint", partitions=1)
    partq.delete_queue(store, "q")
    return len(partq.list_queues(store))


def join(store: Store, _: Store | None = None) -> int:
    """A group that the queue does not know yet reads it from its beginning."""
    return consume(store, "late")


def replicate(store: Store, there: Store | None) -> int:
    assert there is not None
    return sync(store, "q", there.uri, options=there.storage_options or None).total_lag


def promote(there: Store, store: Store | None) -> int:
    assert store is not None
    return int(partq.promote(there, "q", primary_options=store.storage_options or None).fenced)


Role = Callable[[Store, Store | None], int]
ROLES: dict[str, Role] = {
    "producer": produce,
    "consumer": lambda store, _: consume(store),
    "reader": read,
    "maintainer": maintain,
    "scaler": scale,
    "administrator": administer,
    "replicator": replicate,
    "promoter": promote,
}


OTHERS: dict[str, Role] = {"consumer of a group that is new": join}  # not a row of the table


def outcome(role: str, store: Store, other: Store | None) -> dict[str, Any]:
    try:
        value = {**ROLES, **OTHERS}[role](store, other)
        UPKEEP.wait()
        return {"value": value}
    except (partq.PartqError, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def warm_up() -> None:
    """Do everything once, with stores of its own: what Python loads then lies where another user may not read."""
    with tempfile.TemporaryDirectory() as scratch:
        here, there = Store(f"{scratch}/here"), Store(f"{scratch}/there")
        make(here)
        for role in sorted(ROLES, key=lambda role: role == "administrator"):  # it deletes the queue
            outcome(role, *((there, here) if role == "promoter" else (here, there)))
        outcome("producer", Store("/proc/1/nowhere"), None)  # and what an error loads


def become(uid: int, gids: list[int]) -> None:
    os.setgroups(gids)
    os.setgid(uid)
    os.setuid(uid)
    os.umask(0o002)


def main() -> None:
    warm_up()
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            become(asked["uid"], asked["gids"])
            places = [Store(place) for place in asked["places"]]
            print(json.dumps(outcome(asked["role"], places[0], places[1] if len(places) > 1 else None)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
