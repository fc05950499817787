"""By which manifest a sink goes on in a replica that takes over."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.queue.manifest import Manifest, ManifestName, NewFile
from spark_partq.core.queue.restated import restated

SINK = "_redriven.dead"
NEW = ManifestName(SINK, 10**12 - 1, 0)
APP = "partq:redrive/i/0"


def file(partition: int) -> NewFile:
    return NewFile(partition, f"{partition}.parquet", 5, 1000, "{}", 0)


def manifest(batch: int, follows: dict[int, int] | None, *partitions: int) -> Manifest:
    """Batch `batch` of the sink, whose position is 10 more than that of the one before."""
    files = tuple(file(partition) for partition in partitions)
    name = ManifestName(SINK, batch, 0)
    return Manifest(name, None, 0, 3, files, positions={APP: 10 * batch + 10}, late_after_ms=7, follows=follows)


FIRST = manifest(0, {}, 0, 1)
SECOND = manifest(1, {0: 0, 1: 0}, 1, 2)
THIRD = manifest(2, {0: 0, 1: 1, 2: 1}, 0)


def stated(last: dict[int, int], *manifests: Manifest) -> Manifest | None:
    """With a copy that has all files, and in each partition what it records."""
    return restated(manifests, last, lambda of, file: last.get(file.partition, -1) < of.name.batch_id, NEW)


def test_the_next_batch_follows_this_one() -> None:
    assert (FIRST.followed, SECOND.followed) == (SECOND.follows, THIRD.follows)
    assert replace(FIRST, placed={0: (2,)}).followed == {0: 0, 1: 0, 2: 0}
    assert manifest(3, None, 0).followed is None


def test_a_copy_of_what_the_last_one_counts() -> None:
    """The sink finishes its last batch, as anywhere."""
    for last in ({}, {0: 0}, {0: 0, 1: 0}):
        assert stated(last, FIRST) is None
    for last in ({0: 0, 1: 0}, {0: 0, 1: 1}, {0: 0, 1: 1, 2: 1}):
        assert stated(last, SECOND) is None and stated(last, FIRST, SECOND) is None
    assert stated({}, manifest(7, None, 0)) is None  # it does not say what it counts


def test_the_last_one_counts_what_the_copy_lacks() -> None:
    """Then an earlier one holds, and the rest of its batch is placed."""
    made = stated({0: 0}, FIRST, THIRD)
    assert made == replace(FIRST, name=NEW, files=(file(1),), late_after_ms=None, follows={0: 0})
    made = stated({0: 0, 1: 0, 2: 0}, FIRST, SECOND, THIRD)
    assert made is not None and made.positions == {APP: 20} and made.files == (file(1), file(2))
    made = stated({0: 2, 1: 0}, FIRST, SECOND, THIRD)  # partition 0 was moved on, and the others were not
    assert made is not None and made.positions == {APP: 20} and made.files == (file(1), file(2))


def test_the_copy_records_more_than_its_last_one() -> None:
    """The sink had gone on when its manifests were copied."""
    made = stated({0: 2, 1: 1, 2: 0}, FIRST, SECOND)
    assert made is not None and made.positions == SECOND.positions and made.files == (file(2),)


def test_no_position_is_sure() -> None:
    """The sink had written nothing before the pass."""
    made = stated({0: 1}, SECOND, THIRD)
    assert made == replace(THIRD, name=NEW, files=(), positions={APP: 0}, late_after_ms=None, follows={0: 1})
