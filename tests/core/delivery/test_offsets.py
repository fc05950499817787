"""Offsets as users write them and as checkpoints keep them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.core.delivery.offsets import EARLIEST, LATEST, Range, StreamOffset, parse_offsets, resolve

NUMBERS = {"orders": range(4), "bills": range(1)}


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("earliest", EARLIEST),
        (" Latest ", LATEST),
        ("{}", {}),
        ('{"orders": {"0": 10, "3": -2}, "bills": {"0": -1}}', {"orders": {0: 10, 3: -2}, "bills": {0: -1}}),
    ],
)
def test_what_users_write(text: str, meaning: Any) -> None:
    assert parse_offsets("startingOffsets", text, NUMBERS) == meaning


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "none of"),
        ("first", "none of"),
        ("10", "none of"),
        ("[]", "none of"),
        ("null", "none of"),
        ('{"orders": 5}', "none of"),
        ('{"orders": [1]}', "none of"),
        ('{"orders": {"x": 1}}', "none of"),
        ('{"orders": {"0": 1.5}}', "none of"),
        ('{"orders": {"0": "1"}}', "none of"),
        ('{"orders": {"0": true}}', "none of"),
        ('{"orders": {"0": null}}', "none of"),
        ('{"orders": {"0": NaN}}', "none of"),
        ('{"orders": {"0": 1}', "none of"),
        ("[" * 100_000, "none of"),
        ('{"order": {"0": 1}}', "'order'"),
        ('{"orders": {"4": 1}}', "partitions 0 to 3"),
        ('{"orders": {"-1": 1}}', "partitions 0 to 3"),
        ('{"orders": {"0": -3}}', "no offset -3"),
        ('{"orders": {"0": 9223372036854775808}}', "no offset 9223372036854775808"),
    ],
    ids=lambda t: t[:30],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(partq.InvalidArgumentError, match=says) as caught:
        parse_offsets("startingOffsets", text, NUMBERS)
    assert "startingOffsets" in str(caught.value)


@given(st.integers(-2, 50), st.integers(0, 20), st.integers(0, 20), st.booleans())
def test_resolve(wanted: int, first: int, rows: int, strict: bool) -> None:
    """An offset resolves to one that is there, or fails."""
    end = first + rows
    if wanted > end or (strict and 0 <= wanted < first):
        with pytest.raises(partq.OffsetOutOfRangeError) as caught:
            resolve("startingOffsets", wanted, first, end, "orders", 0, fail_on_data_loss=strict)
        assert caught.value.params["offset"] == str(wanted)
        return
    found = resolve("startingOffsets", wanted, first, end, "orders", 0, fail_on_data_loss=strict)
    assert first <= found <= end
    assert found == {EARLIEST: first, LATEST: end}.get(wanted, max(first, wanted))


names = st.from_regex(r"[abz09]([abz09._-]{0,6}[abz09_-])?", fullmatch=True)
ranges = st.builds(lambda e, s, n: Range(e, s, s + n), st.integers(1, 9), st.integers(0, 2**53), st.integers(0, 2**40))


queues = st.dictionaries(names, st.tuples(names, st.dictionaries(st.integers(0, 4095), ranges, max_size=4)), max_size=3)


@settings(max_examples=50)
@given(names, queues)
def test_checkpoint_roundtrip(group: str, read: dict[str, tuple[str, dict[int, Range]]]) -> None:
    """What Spark stores as JSON text reads back as it was, and one offset has one text."""
    offset = StreamOffset(
        group,
        f"{group}-1",
        {queue: id_ for queue, (id_, _) in read.items()},
        {(queue, p): r for queue, (_, parts) in read.items() for p, r in parts.items()},
    )
    text = json.dumps(offset.to_json())
    back = StreamOffset.from_json(json.loads(text))
    assert back == offset
    assert json.dumps(back.to_json()) == text


def test_pinned_checkpoint() -> None:
    """The stored form is part of every checkpoint, so it is pinned."""
    offset = StreamOffset("g", "i", {"q": "uuid"}, {("q", 10): Range(2, 3, 5), ("q", 9): Range(1, 0, 7)})
    assert json.dumps(offset.to_json()) == (
        '{"group": "g", "instance": "i", "queues": {"q": {"id": "uuid", "incarnation": "uuid", '
        '"partitions": {"9": [1, 0, 7], "10": [2, 3, 5]}}}, '
        '"version": 1}'
    )


def _checkpoint(
    group: Any = "g",
    instance: Any = "i",
    queue: str = "q",
    id: Any = "x",
    incarnation: Any = "x",
    partition: str = "0",
    numbers: Any = (1, 2, 3),
    **more: Any,
) -> dict[str, Any]:
    queues = {queue: {"id": id, "incarnation": incarnation, "partitions": {partition: numbers}}}
    return {"version": 1, "group": group, "instance": instance, "queues": queues, **more}


def test_largest_numbers_of_a_checkpoint() -> None:
    most = 2**63 - 1
    for partition in (-1, 4095):
        found = StreamOffset.from_json(_checkpoint(partition=str(partition), numbers=[most, most, most]))
        assert found.ranges == {("q", partition): Range(most, most, most)}


def test_what_is_wrong_in_a_checkpoint_is_named() -> None:
    with pytest.raises(partq.CheckpointMismatchError, match=r"of this source \(instance "):
        StreamOffset.from_json(_checkpoint(instance="../i"))


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        {"version": 0, "group": "g", "instance": "i", "queues": {}},
        {"version": "2", "group": "g", "instance": "i", "queues": {}},
        {"version": True, "queues": None},
        {"version": 1, "group": "g", "instance": "i"},
        {"version": 1, "group": "g", "instance": "i", "queues": {"q": {"id": "x", "partitions": {"0": [1, 2, 3]}}}},
        _checkpoint(numbers=[1, 2]),
        _checkpoint(partition="z"),
        {"offset": 5},
        {"orders": {"0": 5}},
        *[
            _checkpoint(**one)
            for one in ({"group": "../g"}, {"instance": 5}, {"queue": "../q"}, {"id": 5}, {"incarnation": 5})
        ],
        *[_checkpoint(partition=one) for one in ("4096", "-2", "+1", "01", "1_0", "٣", "9" * 5_000)],
        *[
            _checkpoint(numbers=one)
            for one in ([-1, 0, 5], [1, -1, 5], [1, 5, 4], [1, 0, 2**63], [1, 0, 1.5], [1, True, 5], [1, 0, "5"])
        ],
    ],
    ids=str,
)
def test_foreign_checkpoint(value: Any) -> None:
    """A checkpoint of another source is refused as one."""
    with pytest.raises(partq.CheckpointMismatchError):
        StreamOffset.from_json(value)


@pytest.mark.parametrize(
    ("more", "upgrade"),
    [({"made_by": "spark_partq 0.9.0"}, "spark_partq 0.9.0"), ({"made_by": 1}, "the release that wrote it")],
)
def test_newer_checkpoint(more: dict[str, Any], upgrade: str) -> None:
    """One that a newer release wrote says which one to use, whatever else it holds."""
    with pytest.raises(
        partq.NewerStoreError, match=f"needs version 2 of offsets.*has 1: upgrade it to {upgrade} or newer"
    ) as found:
        StreamOffset.from_json({"version": 2, "else": [], **more})
    assert found.value.params["upgrade"] == upgrade


def test_unknown_fields_of_a_checkpoint_are_ignored() -> None:
    queues = {"q": {"id": "u", "incarnation": "v", "partitions": {"0": [1, 0, 7]}, "new": 1}}
    found = StreamOffset.from_json({"version": 1, "group": "g", "instance": "i", "queues": queues, "new": {}})
    assert found == StreamOffset("g", "i", {"q": "u"}, {("q", 0): Range(1, 0, 7)}, {"q": "v"})
