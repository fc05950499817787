"""The doctor on what a process left behind that died in the midst of a command: no fault, and what it advises works."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.storage.files import open_files
from spark_partq.storage.files.memory import MemoryFiles
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.inspect.doctor.findings import Finding
from spark_partq.storage.store import Store
from spark_partq.testing.faults import CHANGES, Crash, FaultyFiles
from tests.groups import Consumer
from tests.helpers import put


def left_behind(at: Path, act: Callable[[Store], object]) -> list[list[Finding]]:
    """What the doctor finds in a copy of the store after each change of the command, as the process dies behind it."""
    found = []
    for change in range(1, 100):
        copy = at.with_name(f"{at.name}-{change}")
        if at.exists():
            shutil.copytree(at, copy)
        files = _Counted(open_files(str(copy), {}), plan={change: "crash after"}, names=CHANGES)
        try:
            act(Store.over(files, uri=str(copy)))
        except Crash:
            found.append(diagnose(Store(str(copy))).findings)
            act(Store(str(copy)))
            assert diagnose(Store(str(copy))).findings == []
        else:
            return found
    raise AssertionError("it does not come to its end")


class _Counted(FaultyFiles):
    """Counts changes alone."""

    def _drawn(self, name: str, path: str) -> tuple[str, float]:
        return super()._drawn(name, path) if name in self.names else ("", 0.0)


def test_a_group_that_is_being_deleted(tmp_path: Path) -> None:
    """Its acknowledgements are not read any more, so what is gone of them is no fault."""
    store = str(tmp_path / "store")
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5))
    consumer = Consumer(store, "a")
    for offset in (2, 4):
        consumer.ack(0, offset)
    consumer.leave()

    def delete(at: Store) -> None:
        with contextlib.suppress(partq.GroupNotFoundError):  # all of it was done
            partq.delete_group(at, "g")

    found = left_behind(Path(store), delete)
    told = [finding for findings in found for finding in findings]
    assert not [finding for finding in told if finding.severity == "fault"]
    interrupted = [finding for finding in told if finding.about == "group g"]
    assert len(interrupted) > 3
    assert {(finding.what, finding.remedy) for finding in interrupted} == {
        ("its deletion was interrupted", "unless that is under way just now, delete it again to finish it")
    }


def test_a_queue_that_is_being_created(tmp_path: Path) -> None:
    """Before its first commit nothing is there that a backup could have."""
    store = str(tmp_path / "store")
    partq.create_queue(store, "other", "v bigint", partitions=1)
    found = left_behind(Path(store), lambda at: partq.create_queue(at, "q", "v bigint", partitions=1, exist_ok=True))
    told = [finding for findings in found for finding in findings]
    assert not [finding for finding in told if finding.severity == "fault"]
    assert any(
        "ended before its first commit" in finding.what and "create it again" in finding.remedy for finding in told
    )


def test_a_dead_message_queue_that_was_deleted(tmp_path: Path) -> None:
    """No query can put a message aside; the command that the doctor names makes the queue again."""
    store = str(tmp_path / "store")
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, max_deliveries=1, dead_letter_queue="dead")
    partq.delete_queue(store, "dead")
    (finding,) = diagnose(Store(store)).findings
    assert "there is no dead-message queue dead" in finding.what
    assert "spark-partq alter-queue q --set dead_letter_queue=dead" in finding.remedy
    partq.alter_queue(store, "q", dead_letter_queue="dead")
    assert diagnose(Store(store)).findings == [] and "dead" in partq.list_queues(store)


@pytest.mark.parametrize("late", ["partitions/partition=0", "control"])
def test_a_file_that_came_after_the_deletion(late: str) -> None:
    """On an object store a process that stood still may write into a queue that is deleted."""
    store = Store.over(MemoryFiles(), uri="memory:/store")
    for name in ("q", "other"):
        partq.create_queue(store, name, "v bigint", partitions=1)
    partq.delete_queue(store, "q")
    store.files.make_folder(f"queues/q/{late}")
    store.files.put(f"queues/q/{late}/{2:020d}-rows.parquet", b"late")
    (fault,) = diagnose(store).faults
    assert fault.remedy == (
        "restore queues/q/control from a backup, while no program uses the store; if the queue was deleted, remove the folder queues/q: a process wrote there too late"
    )


def test_a_queue_that_may_be_whole_but_for_its_control_table(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    partq.create_queue(store, "q", "v bigint", partitions=1)
    shutil.rmtree(tmp_path / "store/queues/q/control/_delta_log")
    (fault,) = diagnose(Store(store)).faults
    assert fault.remedy == "restore queues/q/control from a backup, while no program uses the store"
