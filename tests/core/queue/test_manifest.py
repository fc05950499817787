"""What one batch is: which of its manifests to go on with, and what is read from a store (Q5)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_partq.core.errors import NewerStoreError
from spark_partq.core.queue.manifest import (
    MAX_BYTES,
    Manifest,
    ManifestName,
    NewFile,
    decode,
    encode,
    in_under,
    last_that_holds,
    parse_name,
)
from spark_partq.core.queue.partition_map import PARENT, Generation
from spark_partq.core.stored import MOST

NAME = ManifestName("shop", 7, 0)


def file(partition: int, path: str = "a.parquet") -> NewFile:
    return NewFile(partition, path, 3, 100, '{"numRecords": 3}', 0)


MANIFEST = Manifest(NAME, "query", 0, 2, (file(0), file(1), file(1, "b.parquet")))


# ---- which of them
def test_what_is_left_is_what_the_tables_do_not_record() -> None:
    """Q5: by the generation under which the files were placed, and by no other."""
    assert MANIFEST.left({}) == MANIFEST.files
    assert MANIFEST.left({0: {1}}) == (file(0),)
    assert MANIFEST.left({1: {0, 1}}) == MANIFEST.files
    assert MANIFEST.left({0: [0, 1]}) == ()


@pytest.mark.parametrize(
    ("last_discarded", "recorded", "is_complete"),
    [(NAME.batch_id - 1, {0: {0}}, False), (NAME.batch_id, {0: {0}}, False), (-1, {0: {0, 1}}, True)],
)
def test_whether_all_of_it_is_in(last_discarded: int, recorded: dict[int, set[int]], is_complete: bool) -> None:
    """Q5, S3: of a batch that is discarded, whether its messages are counted as discarded."""
    assert MANIFEST.is_complete(recorded, last_discarded) is is_complete
    discarded = replace(MANIFEST, files=(), discarded=9)
    assert discarded.is_complete({}, last_discarded) is (last_discarded == NAME.batch_id)


def test_a_chain_is_followed_to_its_last_manifest() -> None:
    """Q5: as far as each says what the tables recorded under the maps that have ended."""
    generations = [Generation(2), Generation(3), Generation(4)]
    recorded = {0: {1}, 2: {0, 3}}
    second = Manifest(NAME._replace(number=1), "query", 1, 3, (file(2),), {0: (1,)})
    third = Manifest(NAME._replace(number=2), "query", 2, 4, (file(0),), {0: (1,)})
    assert last_that_holds([MANIFEST, second, third], generations, recorded) == third
    assert last_that_holds([MANIFEST, second, third], generations[:2], {0: {1}}) == second
    assert last_that_holds([], generations, {}) is None


@pytest.mark.parametrize(
    ("other", "recorded"),
    [
        ({"generation": 5}, {0: {1}}),  # a map that is not there
        ({"partition_count": 4}, {0: {1}}),  # or another one
        ({}, {0: {0, 1}}),  # more is in than it knows
        ({}, {}),
    ],
)
def test_a_manifest_of_another_history_does_not_hold(other: dict[str, Any], recorded: dict[int, set[int]]) -> None:
    """S7: one that was copied to a replica whose tables have gone another way."""
    second = Manifest(NAME._replace(number=1), "query", 1, 3, (file(2),), {0: (1,)})
    generations = [Generation(2), Generation(3)]
    assert second.holds(generations, {0: {1}})
    strange = replace(second, **other)
    assert not strange.holds(generations, recorded)
    assert last_that_holds([MANIFEST, strange], generations, recorded) == MANIFEST


def test_what_is_recorded_under_maps_that_have_ended() -> None:
    assert in_under({1: {2, 0}, 0: {PARENT}, 2: {1}, 3: set()}, 2) == {0: (PARENT,), 1: (0, 2)}


# ---- names
def test_names() -> None:
    """They sort as numbers do, and are of no other sink, whatever its name."""
    names = [ManifestName("s", 9, 0), ManifestName("s", 10, 2), ManifestName("s", 10, 11), ManifestName("_stuck", 0, 0)]
    names.append(ManifestName("s", MOST, 0))
    assert [parse_name(name.file) for name in names] == names
    assert sorted(names) == [names[3], *names[:3], names[4]]
    assert names[0].file == "s~00000000000000000009.0.json"


@pytest.mark.parametrize(
    "name",
    [
        "s~1.0.json", "s~00000000000000000009.json", "s~00000000000000000009.00.json", "~00000000000000000009.0.json", "s~99999999999999999999.0.json",
        "_other~00000000000000000009.0.json", ".s~00000000000000000009.0.json.tmp", "s/t~00000000000000000009.0.json", "s~٠0000000000000000009.0.json",
    ],
)  # fmt: skip
def test_other_files_are_no_manifests(name: str) -> None:
    assert parse_name(name) is None


# ---- what is read
def test_the_example_of_the_document_is_what_is_written() -> None:
    """docs/PROTOCOL.md, to the byte."""
    section = (Path(__file__).parents[3] / "docs" / "PROTOCOL.md").read_text().partition("### Manifests")[2]
    example = re.search(r"```json\n(.*?)\n```", section, re.DOTALL)
    assert example is not None
    assert encode(decode(NAME, example[1].encode())) == example[1].encode()


def body(**fields: Any) -> bytes:
    plain = {**json.loads(encode(MANIFEST)), **fields}
    return json.dumps({name: value for name, value in plain.items() if value is not ...}).encode()


def test_written_and_read() -> None:
    """Unknown fields are ignored: a newer program may have written them."""
    again = Manifest(NAME._replace(number=1), None, 3, 0, (file(PARENT),), {0: (0, 1), 2: (PARENT,)})
    discarded = Manifest(NAME, "query", 0, 2, discarded=5)
    for manifest in (MANIFEST, again, discarded):
        assert decode(manifest.name, encode(manifest)) == manifest
    assert decode(NAME, body(new=1)) == MANIFEST


@pytest.mark.parametrize(("after_ms", "age_ns", "in_time"), [
    (None, 10**18, True), (1, 10**6, True), (1, 10**6 + 1, False), (1, -(10**18), True), (0, 1, False), (0, 0, True),
])  # fmt: skip
def test_put_in_time(after_ms: int | None, age_ns: int, in_time: bool) -> None:
    """Q5: by the times of a file and of the manifest."""
    manifest = replace(MANIFEST, late_after_ms=after_ms)
    assert manifest.is_in_time(5 * 10**18, 5 * 10**18 + age_ns) is in_time
    assert decode(NAME, encode(manifest)) == manifest


# ---- positions
OF_GROUP = ManifestName("_group.g", 7, 0)
POSITIONS = {"partq:g/i/0": 5, "partq:g/i/-1": 0, "partq:g/small/i/4095": 2**63 - 1}
WITH_POSITIONS = replace(MANIFEST, name=OF_GROUP, query_id=None, positions=POSITIONS)


def with_positions(value: Any) -> bytes:
    return json.dumps({**json.loads(encode(WITH_POSITIONS)), "positions": value}).encode()


def test_positions() -> None:
    """All of a sink that keeps them, also of a batch that is discarded; those of another sink say nothing."""
    discarded = replace(WITH_POSITIONS, files=(), discarded=3)
    for manifest in (WITH_POSITIONS, discarded, replace(WITH_POSITIONS, name=ManifestName("_sink.g", 7, 0))):
        assert decode(manifest.name, encode(manifest)) == manifest
    assert json.loads(encode(WITH_POSITIONS))["positions"] == {
        "partq:g/i": {"-1": 0, "0": 5},
        "partq:g/small/i": {"4095": 2**63 - 1},
    }
    assert decode(NAME, body(positions={"partq:g/i": {"0": 5}})) == MANIFEST


def test_positions_that_are_missing() -> None:
    """Without them everything would be written again."""
    with pytest.raises(KeyError, match="positions"):
        decode(OF_GROUP, encode(replace(WITH_POSITIONS, positions={})))


@pytest.mark.parametrize(
    "value",
    [[], None, {}, {"partq:g/i": {}}, {"partq:g/i": 5}, {"partq:g/i": {"x": 1}}, {"partq:g/i": {"-2": 1}}, {"partq:g/i": {"4096": 1}},
     {"partq:g/i": {"0": -1}}, {"partq:g/i": {"0": True}}, {"partq:g/i": {"0": 2**63}}, {"x" * 1025: {"0": 1}}],
)  # fmt: skip
def test_positions_that_cannot_be(value: Any) -> None:
    with pytest.raises(ValueError, match="positions"):
        decode(OF_GROUP, with_positions(value))


@pytest.mark.parametrize("follows", [None, {}, {0: 6, -1: 0, 4095: 2**63 - 1}])
def test_batches_that_positions_count(follows: dict[int, int] | None) -> None:
    manifest = replace(WITH_POSITIONS, follows=follows)
    assert decode(OF_GROUP, encode(manifest)) == manifest
    assert decode(NAME, body(follows={"0": 5})) == MANIFEST  # of another sink they say nothing


@pytest.mark.parametrize("value", [[], 5, {"x": 1}, {"-2": 1}, {"4096": 1}, {"0": -1}, {"0": True}, {"0": 2**63}])
def test_batches_that_cannot_be(value: Any) -> None:
    with pytest.raises(ValueError, match="follows"):
        decode(OF_GROUP, json.dumps({**json.loads(encode(WITH_POSITIONS)), "follows": value}).encode())


@pytest.mark.parametrize("fields", [{"min_reader": 2}, {"min_writer": 2}, {"features": ["new"]}])
def test_one_that_only_a_newer_program_can_go_on_with(fields: dict[str, Any]) -> None:
    with pytest.raises(NewerStoreError, match="spark_partq 9"):
        decode(NAME, body(made_by="spark_partq 9", **fields))


FILE = json.loads(encode(MANIFEST))["files"][0]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"sink": "other"}, "its name"),
        ({"batch": 8}, "its name"),
        ({"generation": -1}, "generation"),
        ({"partition_count": 5000}, "partition_count"),
        ({"query": 1}, "text"),
        ({"files": {}}, "files"),
        ({"files": [1]}, "no object"),
        ({"files": [{**FILE, "partition": 2}]}, "partition"),
        ({"files": [{**FILE, "partition": -1}]}, "partition"),
        ({"files": [{**FILE, "path": "../x"}]}, "path is .*plain name"),
        ({"files": [{**FILE, "path": "/etc/passwd"}]}, "plain name"),
        ({"files": [{**FILE, "path": "s3://x"}]}, "plain name"),
        ({"files": [{**FILE, "path": "a\ud800.parquet"}]}, "plain name"),
        ({"files": [{**FILE, "rows": 0}]}, "rows"),
        ({"files": [{**FILE, "rows": 4}]}, "numRecords|another number of rows"),
        ({"files": [{**FILE, "stats": "["}]}, "stats"),
        ({"files": [FILE, FILE]}, "twice"),
        ({"placed": {"0": []}}, "placed"),
        ({"placed": {"0": [1, 0]}}, "unsorted"),
        ({"placed": {"x": [1]}}, "generation"),
        ({"placed": {"0": [4096]}}, "placed"),
        ({"discarded": -1}, "discarded"),
    ],
)
def test_what_cannot_be(fields: dict[str, Any], told: str) -> None:
    """Each field has a type and a range, and a file is in its partition's folder."""
    with pytest.raises(ValueError, match=told):
        decode(NAME, body(**fields))


@pytest.mark.parametrize("field", ["sink", "batch", "query", "generation", "partition_count", "files", "placed", "min_reader"])  # fmt: skip
def test_a_field_that_is_missing(field: str) -> None:
    with pytest.raises(KeyError, match=field):
        decode(NAME, body(**{field: ...}))


def test_no_value_of_a_message_is_in_it() -> None:
    """It outlasts messages that are deleted."""
    stats = json.dumps({"numRecords": 3, "minValues": {"person": 4711}, "maxValues": {"person": 4711}})
    written = replace(MANIFEST, files=(replace(file(0), rows=3, stats=stats),))
    assert b"4711" not in encode(written) and decode(NAME, encode(written)) == written


def test_one_that_nobody_would_read_is_not_written() -> None:
    huge = replace(MANIFEST, files=(replace(file(0), path="x" * MAX_BYTES),))
    with pytest.raises(ValueError, match="more than"):
        encode(huge)
