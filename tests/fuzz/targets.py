"""What reads stored or given values, each with an input that is whole. A seed changes the input; the reader takes it or says why not.

A reader is tried where its errors are those that a user sees. Below that, only what its docstring names may come.
"""

from __future__ import annotations

import json
from typing import Any

from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import PartqError
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import Acks, compacted
from spark_partq.core.group.state import GroupState
from spark_partq.core.patterns import matches
from spark_partq.core.queue import manifest
from spark_partq.core.stored import body_of
from spark_partq.storage.group import ack_table, control
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.log.entries import ForeignEntry, decode
from spark_partq.storage.queue import control as queue_control
from spark_partq.storage.queue.control import QueueControl
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.rows import Row, encode_rows
from spark_partq.storage.store import Store, group_folder
from tests.fuzz import files, store, texts, values
from tests.fuzz.change import changed, damaged, rows_changed
from tests.fuzz.run import Target
from tests.fuzz.runtime import Repeatable

OURS = (PartqError,)

_store = Store("memory:/targets", runtime=Repeatable())
_control, _queue_control = ControlTable(_store, "g"), QueueControl(_store, "q")
_acks, _replica, _manifests = AckTable(_store, "g", 0), ReplicaTable(_store, "q"), Manifests(_store, "q", "u")
_NAME = manifest.ManifestName("_group.g", 7, 0)


def _group(rows: list[Row]) -> GroupState:
    state = GroupState()
    full = [{**dict.fromkeys(name for name, _ in control.COLUMNS), **row} for row in values.stored(rows)]
    _control._replay(state, full)
    return _used(state)


def _used(state: GroupState) -> GroupState:
    """What everybody asks of a state; and its own snapshot, which takes the place of its facts, must say the same."""
    _ = state.flows, state.view(), state.subscribed_partitions, state.rebalance_delay_ms
    for partition_id in state.partitions:
        state.delivered(partition_id, Acks())
    try:
        again = snapshot.from_json(body_of(json.dumps(snapshot.to_json(state))))
    except (ValueError, KeyError, TypeError) as error:
        raise AssertionError(f"nobody can read the snapshot of this state: {error}") from error
    assert again == state, "a snapshot says something else than its state"
    return state


def _snapshot(plain: Any) -> None:
    path = f"{0:020d}-snapshot-{plain['seq'] if isinstance(plain.get('seq'), int) else 0}-{'0' * 32}.parquet"
    _store.files.put(
        f"{group_folder('g')}/control/{path}", encode_rows([{"body": json.dumps(plain)}], _control._disk.arrow)[0]
    )
    _used(_control._snapshot(path))


def _ack_rows(rows: list[Row]) -> None:
    full = [{**dict.fromkeys(name for name, _ in ack_table.COLUMNS), **row} for row in rows]
    compacted([_acks._row(row) for row in full], ["i"])


def _queue(rows: list[Row]) -> None:
    found = _queue_control._replayed(None, values.stored(rows))
    if found.usable:
        _ = found.status, found.partition_numbers, found.removing, found.all_partitions, found.stuck, found.key_types


def _replica_rows(rows: list[Row]) -> None:
    _replica._rows._files = {"file": values.stored(rows)}
    _replica._replayed(None, _replica._rows.rows())


def _manifest(plain: Any) -> None:
    _store.files.put(_manifests.path(_NAME), json.dumps(plain).encode())
    found = _manifests.read(_NAME)
    assert manifest.decode(_NAME, manifest.encode(found)) == found, (
        "a manifest that is written again says something else"
    )


def _lines(entry: list[Any]) -> bytes:
    return "".join(f"{json.dumps(line)}\n" for line in entry).encode()


TARGETS: dict[str, Target] = {
    "group": Target(values.group_rows, rows_changed(control.COLUMNS), _group, OURS),
    "snapshot": Target(lambda: snapshot.to_json(_group(values.group_rows())), changed, _snapshot, OURS),
    "acks": Target(lambda: values.ACKS, rows_changed(ack_table.COLUMNS), _ack_rows, OURS),
    "queue": Target(lambda: values.numbered(values.QUEUE), rows_changed(queue_control.COLUMNS), _queue, OURS),
    "replica": Target(
        lambda: values.numbered(values.REPLICA), rows_changed(queue_control.COLUMNS), _replica_rows, OURS
    ),
    "manifest": Target(lambda: values.MANIFEST, changed, _manifest, OURS),
    "offset": Target(lambda: values.OFFSET, changed, lambda plain: StreamOffset.from_json(plain).to_json(), OURS),
    "pattern": Target(
        lambda: ["([a-z0-9_]+)*-eu"],
        changed,
        lambda plain: [matches(p, "a" * 128) for p in plain if isinstance(p, str)],
        (ValueError,),
    ),
    "entry": Target(lambda: values.ENTRY, changed, lambda lines: decode(_lines(lines)), (ForeignEntry,)),
    "entry-bytes": Target(lambda: _lines(values.ENTRY), damaged, decode, (ForeignEntry,)),
    **texts.TARGETS,
    **files.TARGETS,
    **store.TARGETS,
}
