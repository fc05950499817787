"""What is done to a store before a row: each function says it in its docstring, as docs/errors.md shows it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.store import Store
from tests import queries
from tests.helpers import opened
from tests.refused.others import replicated
from tests.refused.world import World, write
from tests.versions import needs, raise_group, raise_queue

PARTITION = "queues/q/partitions/partition=0"
LOG = f"{PARTITION}/_delta_log"
QUEUE_FACTS = "queues/q/control"
GROUP_FACTS = "groups/g/control"


# ---- the log of a partition
def _entry(world: World, version: int = 1) -> Path:
    return world.path(f"{LOG}/{version:020d}.json")


def _edit_entry(world: World, change: Callable[[list[dict[str, Any]]], object]) -> None:
    path = _entry(world)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    change(actions)
    actions[0]["commitInfo"]["actionCount"] = len(actions)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def _add(actions: list[dict[str, Any]]) -> dict[str, Any]:
    return next(action["add"] for action in actions if "add" in action)


def a_cut_entry(world: World) -> None:
    """An entry of a partition's log is cut short."""
    path = _entry(world)
    path.write_bytes(path.read_bytes()[:300])


def an_entry_without_its_last_line(world: World) -> None:
    """An entry of a partition's log has lost its last line."""
    path = _entry(world)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def no_json(world: World) -> None:
    """An entry of a partition's log is no JSON."""
    _entry(world).write_text("hello")


def a_missing_entry(world: World) -> None:
    """An entry between others of a partition's log is missing."""
    write(world.store, batch_id=1)
    _entry(world).unlink()


def another_program(world: World) -> None:
    """Another program has committed to a partition."""
    _edit_entry(
        world, lambda actions: actions[0]["commitInfo"].update(engineInfo="Apache-Spark/4.1.0 Delta-Lake/4.0.0")
    )


def a_file_elsewhere(world: World) -> None:
    """A partition's log names a file outside of its folder."""
    _edit_entry(world, lambda actions: _add(actions).update(path="../../../../../etc/passwd"))


def a_file_with_a_scheme(world: World) -> None:
    """A partition's log names a file by a URI."""
    _edit_entry(world, lambda actions: _add(actions).update(path="file:///etc/passwd"))


def a_deletion_vector(world: World) -> None:
    """A file of a partition's log has a deletion vector."""
    _edit_entry(world, lambda actions: _add(actions).update(deletionVector={"storageType": "u"}))


def an_unknown_action(world: World) -> None:
    """An entry of a partition's log has an action that no queue has."""
    _edit_entry(world, lambda actions: actions.append({"domainMetadata": {"domain": "x"}}))


def a_newer_delta(world: World) -> None:
    """A partition's log asks for newer versions of Delta."""
    _edit_entry(world, lambda actions: actions.append({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}))


def another_predecessor(world: World) -> None:
    """An entry of a partition's log follows another one than the one before it."""
    _edit_entry(world, lambda actions: actions[0]["commitInfo"].update(previousTxnId="0" * 32))


def no_log(world: World) -> None:
    """The log of a partition is gone."""
    shutil.rmtree(world.path(LOG))


def a_damaged_checkpoint(world: World) -> None:
    """The checkpoint of a partition's log is damaged, and the entries before it are gone."""
    log = LogFolder(Store.at(world.store), PARTITION)
    log.write_checkpoint()
    (checkpoint,) = world.path(LOG).glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-40])
    for entry in world.path(LOG).glob("*.json"):
        entry.unlink()


def an_older_state(world: World) -> None:
    """A partition was put back to an older state than what the query has read."""
    queries.consume(world.store, str(world.folder / "checkpoint"), group="h")
    _entry(world).unlink()


# ---- files of messages
def _messages(world: World) -> Path:
    return next(world.path(PARTITION).glob("*.parquet"))


def no_file_of_messages(world: World) -> None:
    """A file of messages is gone."""
    _messages(world).unlink()


def no_parquet(world: World) -> None:
    """A file of messages is no Parquet."""
    _messages(world).write_bytes(b"hello" * 100)


def fewer_rows(world: World) -> None:
    """A file of messages has fewer rows than its log says."""
    table = pq.read_table(_messages(world), partitioning=None)
    pq.write_table(table.slice(0, 1), _messages(world))


def a_link_to_messages(world: World) -> None:
    """A file of messages is a symbolic link."""
    file, away = _messages(world), world.folder / "away.parquet"
    shutil.move(file, away)
    file.symlink_to(away)


def removed_messages(world: World) -> None:
    """Retention has removed all messages of partition 0."""
    opened(world.store).table(0).remove(len)


def removed_before_read(world: World) -> None:
    """Retention has removed messages of partition 0 that the query's group has not read."""
    queries.consume(world.store, str(world.folder / "checkpoint"), group="h")
    write(world.store, batch_id=1)
    opened(world.store).table(0).remove(len)


# ---- facts and acknowledgements
def _facts(world: World, folder: str, number: int) -> Path:
    return sorted(world.path(folder).glob("*.parquet"))[number]


def _rewrite(file: Path, change: Callable[[dict[str, Any]], object], row: int = -1) -> None:
    table = pq.read_table(file)
    found = table.to_pylist()
    change(found[row])
    assert set(found[row]) == set(table.schema.names)
    pq.write_table(pa.Table.from_pylist(found, table.schema), file)


def _body(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], None]:
    def edit(row: dict[str, Any]) -> None:
        body = json.loads(row["body"])
        change(body)
        row["body"] = json.dumps(body)

    return edit


def a_missing_fact_of_the_queue(world: World) -> None:
    """A file of the queue's facts is gone."""
    _facts(world, QUEUE_FACTS, 0).unlink()


def an_unknown_fact(world: World) -> None:
    """A fact of the queue is of no known kind."""
    _rewrite(_facts(world, QUEUE_FACTS, 1), lambda row: row.update(kind="Nonsense"))


def a_fact_that_cannot_follow(world: World) -> None:
    """A fact of the queue cannot follow the one before it."""
    _rewrite(_facts(world, QUEUE_FACTS, 1), lambda row: row.update(kind="ScalingEnded"))


def a_body_that_is_no_json(world: World) -> None:
    """The body of a fact of the queue is no JSON."""
    _rewrite(_facts(world, QUEUE_FACTS, 0), lambda row: row.update(body="{"))


def a_column_of_a_setting_that_is_not_there(world: World) -> None:
    """A setting among the queue's facts names a column that the messages do not have."""
    _rewrite(_facts(world, QUEUE_FACTS, 0), _body(lambda body: body["settings"].update(message_ttl_column="gone")))


def an_unknown_key_hash(world: World) -> None:
    """The facts of the queue name a hash that there is not."""
    _rewrite(_facts(world, QUEUE_FACTS, 0), _body(lambda body: body.update(key_hash="md5")))


def a_setting_out_of_range(world: World) -> None:
    """A setting among the queue's facts is negative."""
    _rewrite(_facts(world, QUEUE_FACTS, 0), _body(lambda body: body["settings"].update(retention_ms=-1)))


def too_many_partitions(world: World) -> None:
    """The queue's facts say that it has 2^40 partitions."""
    _rewrite(_facts(world, QUEUE_FACTS, 0), _body(lambda body: body.update(partitions=2**40)))


def a_schema_that_is_too_deep(world: World) -> None:
    """The schema among the queue's facts is nested 500 levels deep."""
    deep: Any = "long"
    for _ in range(500):
        deep = {"type": "array", "containsNull": True, "elementType": deep}
    _rewrite(_facts(world, QUEUE_FACTS, 0), _body(lambda body: body["schema"]["fields"][0].update(type=deep)))


def a_missing_fact_of_the_group(world: World) -> None:
    """A file of the group's facts is gone."""
    _facts(world, GROUP_FACTS, 0).unlink()


def an_edited_epoch(world: World) -> None:
    """A fact of the group has an epoch below 0."""
    _rewrite(_facts(world, GROUP_FACTS, 0), lambda row: row.update(epoch=-5), row=2)


def facts_of_the_group_that_are_no_parquet(world: World) -> None:
    """A file of the group's facts is no Parquet."""
    _facts(world, GROUP_FACTS, 0).write_bytes(b"hello")


def an_impossible_acknowledgement(world: World) -> None:
    """An acknowledgement of the group has an offset below 0."""
    _rewrite(_facts(world, "groups/g/acks", -1), lambda row: row.update(offset=-7))


def an_unknown_fact_of_the_group(world: World) -> None:
    """A fact of the group is of no known kind."""
    _rewrite(_facts(world, GROUP_FACTS, 0), lambda row: row.update(kind="Nonsense"))


def an_assignment_without_an_assignor(world: World) -> None:
    """A fact of the group says that an assignment was computed, and not by which assignor."""
    rows = pq.read_table(_facts(world, GROUP_FACTS, 0))["kind"].to_pylist()
    _rewrite(_facts(world, GROUP_FACTS, 0), _body(lambda body: body.pop("assignor")), rows.index("AssignmentComputed"))


def a_fact_of_the_group_without_a_kind(world: World) -> None:
    """A fact of the group has no kind."""
    _rewrite(_facts(world, GROUP_FACTS, 0), lambda row: row.update(kind=None))


def a_missing_acknowledgement(world: World) -> None:
    """A file of the group's acknowledgements is gone."""
    _facts(world, "groups/g/acks", -1).unlink()


def a_replica_of_nowhere(world: World) -> None:
    """The other path is a replica of the queue, whose first fact does not say where its primary is."""
    replicated(world)
    (file,) = (Path(world.there) / "queues/q/replica").glob("*.parquet")
    _rewrite(file, _body(lambda body: body.pop("location")), 0)


def no_control_table(world: World) -> None:
    """The log of the queue's control table is gone."""
    shutil.rmtree(world.path(f"{QUEUE_FACTS}/_delta_log"))


# ---- newer formats
def a_newer_queue(world: World) -> None:
    """A newer release has raised the reader version of the queue."""
    raise_queue(world.store, needs(2, 2))


def a_queue_for_newer_writers(world: World) -> None:
    """A newer release has raised the writer version of the queue."""
    raise_queue(world.store, needs(1, 2))


def a_feature_of_the_queue(world: World) -> None:
    """A newer release has given the queue a feature."""
    raise_queue(world.store, needs(1, 1, "tides"))


def a_newer_group(world: World) -> None:
    """A newer release has raised the reader version of the group."""
    raise_group(world.store, needs(2, 2))
