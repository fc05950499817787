"""The doctor and batches that were begun: a manifest that is damaged, a batch that nobody finishes (Q5, S3)."""

from __future__ import annotations

import json
import os

import pytest

import spark_partq as partq
from spark_partq.core.format import RELEASE
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.queue.control import QueueControl
from spark_partq.storage.store import Store
from tests.scaled import Sink, make, messages
from tests.storage.procedures.test_begun import half_of_a_batch, manifests


def found(store: str) -> list[str]:
    return [str(finding) for finding in diagnose(Store.at(store)).findings]


def an_hour_goes_by(store: str) -> None:
    for path in manifests(store):
        os.utime(path, (path.stat().st_mtime - 3_601,) * 2)


def test_a_batch_that_nobody_finishes(store: str) -> None:
    """It is reported after an hour, with how it is finished; then not any more."""
    make(store, 2)
    half_of_a_batch(store)
    assert found(store) == []
    an_hour_goes_by(store)
    (finding,) = found(store)
    assert finding.startswith("warning: queue q: batch 0 of sink s was begun over an hour ago, and ")
    assert "of its messages are not in the queue; start the query of this sink again" in finding
    assert Sink(store).write(0, messages(0, 20)) > 0
    assert found(store) == []


@pytest.mark.parametrize(
    ("sink_id", "command"),
    [("_stuck", "spark-partq copy-stuck q"), ("_redriven.dead", "spark-partq dead-letter redrive dead")],
)
def test_a_batch_that_a_command_finishes(store: str, sink_id: str, command: str) -> None:
    """No query has such a sink."""
    make(store, 2)
    half_of_a_batch(store)
    (path,) = manifests(store)
    body = {**json.loads(path.read_text()), "sink": sink_id, "positions": {"partq:redrive/id": {"0": 1}}}
    path.with_name(path.name.replace("s~", f"{sink_id}~")).write_text(json.dumps(body))
    path.unlink()
    an_hour_goes_by(store)
    (finding,) = found(store)
    assert f"run {command} again: it finishes the batch" in finding


def test_a_discard_that_nobody_counts(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer died between its decision and the count."""
    make(store, 2, reject_to_sender="off")
    partq.set_ingress(store, "q", False)
    with monkeypatch.context() as patch:
        patch.setattr(QueueControl, "discard", lambda *_: None)
        Sink(store).write(0, messages(0, 20))
    an_hour_goes_by(store)
    (finding,) = found(store)
    assert "batch 0 of sink s" in finding and "20 messages, which are discarded, are not counted" in finding
    assert Sink(store).write(0, messages(0, 20)) == 0 and partq.describe_queue(store, "q").discarded == 20
    assert found(store) == []


def test_a_damaged_manifest(store: str) -> None:
    """It names the file, the sink and the batch, and does not advise to delete anything."""
    make(store, 2)
    half_of_a_batch(store)
    whole = manifests(store)[0].read_bytes()
    manifests(store)[0].write_bytes(whole[:-9])
    (finding,) = found(store)
    assert finding.startswith("fault: queue q: manifest ") and "Batch 0 of sink 's' cannot be finished" in finding
    assert "is missing" not in finding, "no field is named that the JSON lacks"
    assert finding.endswith("s~00000000000000000000.0.json from a backup") and "delete" not in finding


def test_one_of_a_newer_program(store: str) -> None:
    make(store, 2)
    half_of_a_batch(store)
    whole = manifests(store)[0].read_text()
    manifests(store)[0].write_text(
        whole.replace('"min_writer":1', '"min_writer":2').replace(RELEASE, "spark_partq 9.0")
    )
    (finding,) = found(store)
    assert "needs writer version 2" in finding and finding.endswith("check it with spark_partq 9.0 or newer")
    with pytest.raises(partq.NewerStoreError):
        Sink(store).write(0, messages(0, 20))
