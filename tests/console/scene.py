"""Queues that are written and read while somebody watches: a producer, and clients without a JVM."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import spark_partq as partq
from tests.helpers import eventually, opened, put
from tests.queries import Query

QUEUE, GROUP = "orders", "billing"
PARTITIONS = 8
_EVERY_S = 0.03


class Scene:
    """Queue `orders`, into which messages come all the time, and its consumers; the messages are the same each time."""

    def __init__(self, folder: Path) -> None:
        self.store = str(folder / "store")
        self._folder = folder
        self._ended = threading.Event()
        self.clients: dict[str, Query] = {}
        settings = {"rebalance_delay_ms": 1_500, "max_handoff_time_ms": 20_000}
        partq.create_queue(self.store, QUEUE, "v long", partitions=PARTITIONS, **settings)
        partq.create_queue(self.store, "refunds", "v long", partitions=2)
        put(self.store, 0, range(12), queue="refunds")
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self._producer.start()

    def _produce(self) -> None:
        chance, queue = random.Random(7), opened(self.store, QUEUE)
        while not self._ended.wait(_EVERY_S):
            number = chance.randrange(PARTITIONS)
            table = queue.table(number)
            table.refresh()
            put(self.store, number, range(chance.randrange(1, 9)), queue=QUEUE, table=table)

    def join(self, instance: str, flows: int = 2, group: str = GROUP, queue: str = QUEUE) -> None:
        """A client starts; it acknowledges a micro-batch every 200 ms."""
        self.clients[instance] = Query(
            self.store, self._folder / instance, lambda batch, _: len(batch.collect()), queue=queue, every_s=0.2,
            group=group, flows=flows, instanceId=instance,
        )  # fmt: skip

    def leave(self, instance: str) -> None:
        """It stops; as its name is its own, the others wait for its session to end before they take over."""
        self.clients.pop(instance).leave()

    def wait_until(self, members: int, group: str = GROUP) -> None:
        """Until so many clients have joined, and all is shared among them."""

        def shared() -> bool:
            if group not in partq.list_groups(self.store):
                return False
            found = partq.describe_group(self.store, group)
            return len(found.members) == members and found.state == "Ready" and not found.unassigned

        eventually(shared, f"a group of {members} clients")

    def end(self) -> None:
        self._ended.set()
        self._producer.join()
        for instance in list(self.clients):
            self.leave(instance)
