"""What others do to a store before a row: their folders, their links, their queries. Each docstring is what docs/errors.md shows."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import spark_partq as partq
from spark_partq.core.group.events import Skip
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.queue.facts import QueueFact
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.procedures.scale import start
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.store import Store
from spark_partq.target.table import DeltaTarget
from tests import queries
from tests.groups import Consumer
from tests.helpers import eventually, opened, put
from tests.refused.world import World, write

PARTITION = "queues/q/partitions/partition=0"


# ---- dead messages
def a_key_is_held(world: World) -> None:
    """A queue `kept` with `dead_letter_order='hold'` has a dead message, whose key group `h` holds."""
    partq.create_queue(
        world.store, "kept", "v bigint", key="v", partitions=1, max_deliveries=1, dead_letter_queue="dead", dead_letter_order="hold"
    )  # fmt: skip
    put(world.store, 0, range(3), queue="kept")
    queue, consumer = opened(world.store, "kept"), Consumer(world.store, "h", group="h", queues=("kept",))
    DeadLetters(Store(world.store), "dead", "h").send(queue, queue.table(0), 1, DeadMessages(0, 1, "dead", 1))
    place = consumer.partition_id(0, "kept")
    consumer.group.decide(lambda: [Skip(place, consumer.incarnation, 0, 1, "dead", "dead", frozenset({7}))])


def a_key_is_held_in_a_drain(world: World) -> None:
    """A queue `kept` with `dead_letter_order='hold'` has a dead message, whose key group `h` holds, and is being drained."""
    a_key_is_held(world)
    start(opened(world.store, "kept"), 2, "drain")


# ---- folders and links
def a_foreign_folder(world: World) -> None:
    """`queues/mine` is a folder of somebody else."""
    world.path("queues/mine").mkdir()
    world.path("queues/mine/notes.txt").write_text("hello")


def another_store(world: World) -> None:
    """The other path is a store with a queue `q`."""
    partq.create_queue(world.there, "q", "v long", partitions=1)


def a_used_folder(world: World) -> None:
    """The other path is a folder with something else."""
    Path(world.there).mkdir()
    (Path(world.there) / "notes.txt").write_text("hello")


def a_queue_with_a_map(world: World) -> None:
    """A queue `maps` has the column `m map<string,long>`."""
    partq.create_queue(world.store, "maps", "m map<string, bigint>, v bigint", partitions=1)


def a_table_with_row_tracking(world: World) -> None:
    """There is a Delta table with row tracking."""
    DeltaTarget.create(Store(world.there), payload_schema("v bigint"), [])
    entry = Path(world.there) / "_delta_log" / f"{0:020}.json"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    entry.write_text("".join(json.dumps({"protocol": protocol} if "protocol" in a else a) + "\n" for a in actions))


def a_table(world: World) -> None:
    """There is a Delta table with the columns `v string` and `note string not null`, partitioned by `note`."""
    fields = [
        {"name": name, "type": "string", "nullable": nullable, "metadata": {}}
        for name, nullable in (("v", True), ("note", False))
    ]
    DeltaTarget.create(Store(world.there), {"type": "struct", "fields": fields}, ["note"])


def a_file(world: World) -> None:
    """The other path is a file."""
    Path(world.there).write_text("hello")


def a_link_as_queue(world: World) -> None:
    """The folder of the queue is a symbolic link."""
    away = world.folder / "away"
    shutil.move(world.path("queues/q"), away)
    world.path("queues/q").symlink_to(away)


def a_link_as_queues(world: World) -> None:
    """The folder `queues` is a symbolic link."""
    away = world.folder / "away"
    shutil.move(world.path("queues"), away)
    world.path("queues").symlink_to(away)


def a_link_as_partition(world: World) -> None:
    """The folder of a partition is a symbolic link."""
    away = world.folder / "away"
    shutil.move(world.path(PARTITION), away)
    world.path(PARTITION).symlink_to(away)


def closed(world: World) -> None:
    """Only its owner may enter the store."""
    os.chmod(world.store, 0o700)


def open_to_readers(world: World) -> None:
    """Everybody may read the store, and nobody else write it."""
    for path in [world.path("."), *world.path(".").rglob("*")]:
        os.chmod(path, 0o755 if path.is_dir() else 0o644)


def _open_to_all(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chmod(path, 0o777 if path.is_dir() else 0o666)


def manifests_open_to_readers(world: World) -> None:
    """Everybody may write the store, except the folder of the queue's manifests."""
    _open_to_all(world.path("."))
    for folder in world.path("queues/q/manifests").iterdir():
        os.chmod(folder, 0o755)


def _closed_file(world: World, pattern: str, number: int = 0) -> None:
    open_to_readers(world)
    os.chmod(sorted(world.path(".").glob(pattern))[number], 0)


def closed_facts_of_the_queue(world: World) -> None:
    """Nobody may read a file of the queue's facts."""
    _closed_file(world, "queues/q/control/*.parquet")


def closed_facts_of_the_group(world: World) -> None:
    """Nobody may read a file of the group's facts."""
    _closed_file(world, "groups/g/control/*.parquet")


def closed_acknowledgements(world: World) -> None:
    """Nobody may read a file of the group's acknowledgements."""
    _closed_file(world, "groups/g/acks/*.parquet")


def a_closed_entry(world: World) -> None:
    """Nobody may read an entry of a partition's log."""
    _closed_file(world, f"{PARTITION}/_delta_log/*.json", 1)


def a_closed_checkpoint(world: World) -> None:
    """Nobody may read the checkpoint of a partition's log."""
    LogFolder(Store.at(world.store), PARTITION).write_checkpoint()
    _closed_file(world, f"{PARTITION}/_delta_log/*.checkpoint.parquet")


def closed_messages(world: World) -> None:
    """Nobody may read a file of messages."""
    _closed_file(world, f"{PARTITION}/*.parquet")


def _behind(world: World) -> None:
    """The other path is a replica that anybody may write, and lacks a batch of the queue."""
    replicated(world)
    _open_to_all(Path(world.there))
    write(world.store, batch_id=1)


def closed_messages_that_are_not_copied(world: World) -> None:
    """Nobody may read a file of messages that the replica at the other path lacks."""
    before = set(world.path(PARTITION).glob("*.parquet"))
    _behind(world)
    (new,) = set(world.path(PARTITION).glob("*.parquet")) - before
    _closed_file(world, f"{PARTITION}/{new.name}")


def a_closed_entry_that_is_not_copied(world: World) -> None:
    """Nobody may read an entry of a partition's log that the replica at the other path lacks."""
    _behind(world)
    _closed_file(world, f"{PARTITION}/_delta_log/*.json", -1)


# ---- what others do
def half_deleted(world: World) -> None:
    """The deletion of the queue was interrupted."""
    open_control(Store.at(world.store), "q").decide(lambda _: [QueueFact("QueueDeleted", {})])


def ingress_disabled(world: World) -> None:
    """Ingress of the queue is disabled."""
    partq.set_ingress(world.store, "q", False)


def being_drained(world: World) -> None:
    """The queue is being drained, to get 3 partitions."""
    try:
        partq.scale(world.store, "q", 3, "drain", timeout_s=0)
    except partq.ScalingInProgressError:
        return
    raise AssertionError("group g has not read everything")


def exclusive(world: World) -> None:
    """Queue `x` is exclusive."""
    partq.create_queue(world.store, "x", "v long", partitions=0)


def a_dead_message(world: World) -> None:
    """Queue `q` has the dead-message queue `dead`, which holds one of its messages."""
    partq.alter_queue(world.store, "q", dead_letter_queue="dead", max_deliveries=2)
    queue = opened(world.store)
    table = queue.table(0)
    table.refresh()
    DeadLetters(queue.store, "dead", "g").send(queue, table, 1, DeadMessages(3, 4, "dead", 2))


def a_dead_message_of_a_deleted_queue(world: World) -> None:
    """The dead-message queue `dead` holds a message of queue `q`, which was deleted since."""
    a_dead_message(world)
    partq.delete_queue(world.store, "q")


def a_dead_message_of_other_columns(world: World) -> None:
    """The dead-message queue `dead` holds a message of queue `q`, which was deleted since and created again with the column `w string`."""
    a_dead_message_of_a_deleted_queue(world)
    partq.create_queue(world.store, "q", "w string", partitions=2)


def a_dead_message_and_no_ingress(world: World) -> None:
    """The dead-message queue `dead` holds a message of queue `q`, whose ingress is disabled."""
    a_dead_message(world)
    partq.set_ingress(world.store, "q", False)


def a_later_batch(world: World) -> None:
    """Sink `s` has written batch 5."""
    write(world.store, batch_id=5)


def a_batch_of_another_query(world: World) -> None:
    """Another query has written batch 5 of sink `s`."""
    write(world.store, batch_id=5, query_id="one")


def a_member(world: World) -> None:
    """A query with `sessionTimeoutMs=10000` and assignor `balanced` consumes in group `g`."""
    Consumer(world.store, "b")


def a_member_that_beats(world: World) -> None:
    """A query consumes in group `g`."""
    seen: list[Any] = []
    queries.running(world.store, world.folder / "checkpoint", seen, group="g", sessionTimeoutMs=2_000)
    eventually(lambda: len(seen) == 14, "the messages that the group has not read")


def replicated(world: World) -> None:
    """The other path is a replica of the queue."""
    partq.replicate(world.store, "q", world.there)


def put_back(world: World) -> None:
    """After a replica was made and more was written, the queue's store is put back to the state of before."""
    replicated(world)
    before = world.folder / "checkpoint-backup"
    shutil.copytree(world.store, before)
    write(world.store, batch_id=1)
    replicated(world)
    shutil.rmtree(world.store)
    before.rename(world.store)


def promoted(world: World) -> None:
    """The replica of the queue at the other path was promoted."""
    replicated(world)
    partq.promote(world.there, "q")


def a_lost_replica(world: World) -> None:
    """The replica of the queue is gone."""
    replicated(world)
    shutil.rmtree(world.there)


def a_checkpoint(world: World) -> None:
    """The checkpoint is that of a query that reads queue `q` in group `h`."""
    queries.consume(world.store, str(world.folder / "checkpoint"), group="h")


def a_queue_created_again(world: World) -> None:
    """The checkpoint is older than queue `q`, which was deleted and created again."""
    a_checkpoint(world)
    partq.delete_queue(world.store, "q")
    partq.create_queue(world.store, "q", "k string, v bigint", key="k", partitions=2)


def _checkpoint(world: World, offset: Any) -> None:
    made = queries.Checkpoint(world.folder / "checkpoint")
    made.plan(0, offset)
    made.commit(0)


def a_checkpoint_of_another_source(world: World) -> None:
    """The checkpoint is one of Spark's `rate` source."""
    _checkpoint(world, {"offset": 1, "timestamp": 1000})


def a_newer_checkpoint(world: World) -> None:
    """The checkpoint was written by a newer release."""
    _checkpoint(world, {"version": 2, "made_by": "spark_partq 0.9.0"})


def a_checkpoint_with_a_wrong_offset(world: World) -> None:
    """The checkpoint has an offset of 2^63."""
    queue_id = opened(world.store).state.queue_id
    queues = {"q": {"id": queue_id, "incarnation": queue_id, "partitions": {"0": [1, 0, 2**63]}}}
    _checkpoint(world, {"version": 1, "group": "h", "instance": "i", "queues": queues})


def a_listener_that_fails(world: World) -> None:
    """The application's listener of group `fails` raises."""

    class Listener:
        def on_partitions_assigned(self, partitions: Any) -> None:
            raise OSError("no connection")

        def on_partitions_revoked(self, partitions: Any) -> None: ...
        def on_partitions_lost(self, partitions: Any) -> None: ...
        def on_active_changed(self, flow: str, active: bool) -> None: ...

    queries.driver().add_listener("fails", Listener())


def a_settings_file_with_another_argument(world: World) -> None:
    """`wrong.toml` says `partitions = 4`."""
    (world.folder / "wrong.toml").write_text("partitions = 4\n")


def a_settings_file(world: World) -> None:
    """`wrong.toml` says `retention_ms = "7 weeks"`."""
    (world.folder / "wrong.toml").write_text('retention_ms = "7 weeks"\n')
