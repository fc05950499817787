"""The row count of a file, as its statistics tell it: the short way to it and JSON never differ."""

from __future__ import annotations

import datetime as dt
import json
import random

import pytest

from spark_partq.storage.log.entries import Add
from spark_partq.storage.queue.file_index import delta_stats

WRITTEN = [
    delta_stats(0, {}),
    delta_stats(1_000, {"id": (0, 9), "a name": (-3, 2**62)}),
    delta_stats(7, {"day": (dt.date(2020, 1, 1), dt.date(2021, 1, 1))}),
]


def told(statistics: str) -> int | None:
    return Add("part.parquet", 1, {}, statistics).rows


@pytest.mark.parametrize("written", WRITTEN)
def test_statistics_that_are_cut_short_tell_nothing(written: str) -> None:
    assert told(written) == json.loads(written)["numRecords"]
    assert {told(written[:end]) for end in range(len(written))} == {None}


def test_statistics_of_another_writer() -> None:
    """With spaces, which the short way does not know."""
    assert [told(json.dumps({"numRecords": count})) for count in (0, 7, -1)] == [0, 7, None]


def test_damaged_statistics_tell_what_their_json_does() -> None:
    rng = random.Random(1)
    for _ in range(20_000):
        statistics = rng.choice(WRITTEN)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(statistics) + 1)
            statistics = statistics[:at] + rng.choice(["", *'{}",:0123 -\\a\n']) + statistics[at + rng.randint(0, 1) :]
        try:
            count = json.loads(statistics)["numRecords"]
        except (ValueError, KeyError, TypeError):
            count = None
        assert told(statistics) == (count if type(count) is int and count >= 0 else None), statistics
