"""By which manifest a sink goes on in a replica that takes over."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_partq.core.queue.manifest import Manifest, ManifestName, NewFile
from spark_partq.core.queue.restated import restated

SINK = "_redriven.dead"
NEW = ManifestName(SINK, 10**12 - 1, 0)
APP = "partq:redrive/i/0"


def file(partition: int, batch: int = 0) -> NewFile:
    return NewFile(partition, f"{partition}-{batch}.parquet", 5, 1000, "{}", 0)


def manifest(batch: int, follows: dict[int, int] | None, *partitions: int) -> Manifest:
    """Batch `batch` of the sink, whose position is 10 more than that of the one before."""
    files = tuple(file(partition, batch) for partition in partitions)
    name = ManifestName(SINK, batch, 0)
    return Manifest(name, None, 0, 3, files, positions={APP: 10 * batch + 10}, late_after_ms=7, follows=follows)


FIRST = manifest(0, {}, 0, 1)
SECOND = manifest(1, {0: 0, 1: 0}, 1, 2)
THIRD = manifest(2, {0: 0, 1: 1, 2: 1}, 0)


def stated(
    last: Mapping[int, int], *manifests: Manifest, gone: Collection[NewFile] = (), discarded: int = -1
) -> Manifest:
    """With a copy whose partitions record these last batches, all of them placed by the first map, and that has all files but some."""

    def has_part(name: ManifestName, partition: int, generation: int) -> bool:
        return generation == 0 and last.get(partition) == name.batch_id

    return restated(manifests, last, has_part, lambda file: file not in gone, discarded, NEW)


def as_in(manifest: Manifest, last: Mapping[int, int], *left: NewFile) -> Manifest:
    return replace(manifest, name=NEW, files=left, placed={}, late_after_ms=None, follows=dict(last))


def test_a_copy_of_what_the_last_one_counts() -> None:
    """The sink goes on with its last batch, of which a part may be in."""
    assert stated({}, FIRST) == as_in(FIRST, {}, *FIRST.files)
    assert stated({0: 0}, FIRST) == as_in(FIRST, {0: 0}, file(1))
    for last, left in (({0: 0, 1: 0}, (1, 2)), ({0: 0, 1: 1}, (2,)), ({0: 0, 1: 1, 2: 1}, ())):
        made = as_in(SECOND, last, *(file(partition, 1) for partition in left))
        assert stated(last, SECOND) == stated(last, FIRST, SECOND) == made
    old = manifest(7, None, 0)
    assert stated({}, old) == as_in(old, {}, file(0, 7))  # it does not say what it counts


def test_the_last_one_counts_what_the_copy_lacks() -> None:
    """Then an earlier one is taken, and the rest of its batch."""
    assert stated({0: 0}, FIRST, THIRD) == as_in(FIRST, {0: 0}, file(1))
    for last in ({0: 0, 1: 0, 2: 0}, {0: 2, 1: 0}):  # in the second, partition 0 was moved on and the others were not
        assert stated(last, FIRST, SECOND, THIRD) == as_in(SECOND, last, *SECOND.files)


def test_the_copy_records_more_than_its_last_one() -> None:
    """The sink had gone on when its manifests were copied."""
    last = {0: 2, 1: 1, 2: 0}
    assert stated(last, FIRST, SECOND) == as_in(SECOND, last, file(2, 1))


def test_a_part_that_was_placed_by_an_earlier_map() -> None:
    """The rest of the batch alone does not count, if the copy lacks that part."""
    rest = replace(SECOND, name=SECOND.name._replace(number=1), generation=1, placed={0: (1,)}, files=(file(2, 1),))
    last = {0: 0, 1: 0}
    assert stated(last, FIRST, SECOND, rest) == as_in(SECOND, last, *SECOND.files)
    assert stated(last, FIRST, rest) == as_in(FIRST, last)
    last = {0: 0, 1: 1}
    assert stated(last, FIRST, SECOND, rest) == as_in(rest, last, file(2, 1))


def test_files_that_are_gone() -> None:
    """Its messages cannot be placed any more; those that are in a partition need no file."""
    last = {0: 0, 1: 0}
    assert stated(last, FIRST, SECOND, gone=[file(2, 1)]) == as_in(FIRST, last)
    last = {0: 0, 1: 0, 2: 1}
    assert stated(last, FIRST, SECOND, gone=[file(2, 1)]) == as_in(SECOND, last, file(1, 1))


def test_no_position_is_sure() -> None:
    """The sink had written nothing before the pass."""
    assert stated({0: 1}, SECOND, THIRD) == as_in(replace(THIRD, positions={APP: 0}), {0: 1})


def test_messages_that_are_discarded() -> None:
    """They are counted once, by the copy or by the new manifest."""
    none = replace(SECOND, files=(), discarded=5)
    last = {0: 0, 1: 0}
    assert stated(last, FIRST, none) == as_in(none, last)
    assert stated(last, FIRST, none, discarded=1) == as_in(replace(none, discarded=None), last)
    assert stated({}, none).discarded is None
