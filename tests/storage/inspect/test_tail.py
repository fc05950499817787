"""What `tail` shows of values that Python does not have, and how it finds keys."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

import spark_partq as partq
from spark_partq.storage.inspect.tail import Tail
from tests.helpers import new_file, opened, put

MOMENT = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)


def test_a_part_of_a_value_that_python_does_not_have(store: str) -> None:
    """A date after the year 9999 is a number, and a text that is no UTF-8 has a mark; all other parts are what they are."""
    columns = "c struct<name: string, until: date, at: timestamp>, l array<string>, m map<string, date>"
    partq.create_queue(store, "q", columns, partitions=1)
    far = pa.array([2_932_897], pa.int32()).cast(pa.date32())
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"Ada", b"\xff"], pa.binary()).buffers())
    types = {"name": pa.string(), "until": pa.date32(), "at": pa.timestamp("us", "UTC")}
    parts = [pa.array(["Ada"]), far, pa.array([MOMENT], types["at"])]
    rows = {
        "c": pa.StructArray.from_arrays(parts, fields=[pa.field(name, type_) for name, type_ in types.items()]),
        "l": pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), texts),
        "m": pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["key"]), far),
    }
    opened(store).table(0).append([new_file(store, "q", 0, rows)], None, 0)
    (found,) = Tail(opened(store), {}).last(1)
    assert found.values["c"] == {"name": "Ada", "until": 2_932_897, "at": MOMENT}
    assert (found.values["l"], found.values["m"]) == (["Ada", "�"], [("key", 2_932_897)])


def test_a_key_that_is_not_a_number(store: str) -> None:
    partq.create_queue(store, "q", "k double", partitions=1, key="k")
    put(store, 0, [float("nan"), 1.5], column="k", type_=pa.float64())
    assert len(Tail(opened(store), {"k": "nan"}).last(9)) == 1
