"""Keys of every supported type with the hash that Spark 4.2's ``xxhash64`` gave them; never to be changed (Q2)."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

UTC = dt.UTC
LONGS = {"type": "array", "elementType": "long", "containsNull": True}
NAMES = {"type": "array", "elementType": "string", "containsNull": True}
PLACE = {
    "type": "struct",
    "fields": [
        {"name": "city", "type": "string", "nullable": True, "metadata": {}},
        {"name": "at", "type": LONGS, "nullable": True, "metadata": {}},
    ],
}


@dataclass(frozen=True)
class Vector:
    """A key: its columns' types, its values in Python and in SQL, and their hash."""

    name: str
    types: list[Any]
    values: list[Any]
    sql: str
    hash: int


def _when(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


VECTORS = [
    Vector("empty string", ["string"], [""], "''", -7444071767201028348),
    Vector("tail number", ["string"], ["N14228"], "'N14228'", 2818031054348419725),
    Vector("unicode string", ["string"], ["Zürich 東京 🚀"], "'Zürich 東京 🚀'", 4018150483090212680),
    Vector("long string", ["string"], ["x" * 100], "repeat('x', 100)", 365730103971579591),
    Vector("32 bytes", ["string"], ["abcdefgh" * 4], "repeat('abcdefgh', 4)", 7672564337819487975),
    Vector("string with nul", ["string"], ["a\0b"], "concat('a', char(0), 'b')", -7028150433230623758),
    Vector("empty binary", ["binary"], [b""], "X''", -7444071767201028348),
    Vector("binary", ["binary"], [b"\x00\xff\x10"], "X'00FF10'", 5415089035989094387),
    Vector("true", ["boolean"], [True], "true", -6698625589789238999),
    Vector("false", ["boolean"], [False], "false", 3614696996920510707),
    Vector("byte", ["byte"], [-128], "cast(-128 as tinyint)", 4160238337661960656),
    Vector("short", ["short"], [32767], "cast(32767 as smallint)", 8952525448871805501),
    Vector("zero", ["integer"], [0], "0", 3614696996920510707),
    Vector("int", ["integer"], [-2147483648], "int(-2147483648)", 2073849959933241805),
    Vector("long zero", ["long"], [0], "0L", -5252525462095825812),
    Vector("long one", ["long"], [1], "1L", -7001672635703045582),
    Vector("long max", ["long"], [9223372036854775807], "9223372036854775807L", -3246596055638297850),
    Vector("long min", ["long"], [-9223372036854775808], "bigint(-9223372036854775808)", -8619748838626508300),
    Vector("float", ["float"], [1.5], "cast(1.5 as float)", 6163473420726370430),
    Vector("float tenth", ["float"], [0.1], "cast(0.1 as float)", -7604770425485878823),
    Vector("float minus zero", ["float"], [-0.0], "cast('-0.0' as float)", 3614696996920510707),
    Vector("float zero", ["float"], [0.0], "cast(0 as float)", 3614696996920510707),
    Vector("float nan", ["float"], [math.nan], "float('NaN')", 2692338816207849720),
    Vector("float infinity", ["float"], [-math.inf], "float('-Infinity')", -7580553461823983095),
    Vector("double", ["double"], [-2.5e300], "-2.5e300D", 7772422671254294480),
    Vector("double minus zero", ["double"], [-0.0], "double('-0.0')", -5252525462095825812),
    Vector("double zero", ["double"], [0.0], "double(0)", -5252525462095825812),
    Vector("double nan", ["double"], [math.nan], "double('NaN')", -3127944061524951246),
    Vector("double tiny", ["double"], [5e-324], "double('4.9E-324')", -7001672635703045582),
    Vector(
        "decimal small",
        ["decimal(10,2)"],
        [Decimal("-12345678.90")],
        "cast(-12345678.90 as decimal(10,2))",
        8562530703369362178,
    ),
    Vector(
        "decimal 18",
        ["decimal(18,0)"],
        [Decimal(999999999999999999)],
        "cast(999999999999999999 as decimal(18,0))",
        2162198894918931945,
    ),
    Vector("decimal 19", ["decimal(19,0)"], [Decimal(128)], "cast(128 as decimal(19,0))", 6715097930120473301),
    Vector("decimal zero", ["decimal(38,18)"], [Decimal(0)], "cast(0 as decimal(38,18))", -8959994473701255385),
    Vector("decimal minus one", ["decimal(38,0)"], [Decimal(-1)], "cast(-1 as decimal(38,0))", -4006032525457443936),
    Vector(
        "decimal minus 128", ["decimal(38,0)"], [Decimal(-128)], "cast(-128 as decimal(38,0))", -7898411661632158123
    ),
    Vector(
        "decimal minus 129", ["decimal(38,0)"], [Decimal(-129)], "cast(-129 as decimal(38,0))", -6459515886037897956
    ),
    Vector(
        "decimal large",
        ["decimal(38,10)"],
        [Decimal("9999999999999999999999999999.9999999999")],
        "cast('9999999999999999999999999999.9999999999' as decimal(38,10))",
        -47190729175993179,
    ),
    Vector("date", ["date"], [dt.date(2013, 1, 31)], "date'2013-01-31'", -2397725477404839249),
    Vector("date before 1970", ["date"], [dt.date(1600, 2, 29)], "date'1600-02-29'", -8378364455301309876),
    Vector("date first", ["date"], [dt.date(1, 1, 1)], "date'0001-01-01'", 6773727150484150602),
    Vector(
        "timestamp",
        ["timestamp"],
        [_when("2013-01-31T12:34:56.123456+00:00")],
        "timestamp'2013-01-31 12:34:56.123456Z'",
        -394629246998165117,
    ),
    Vector(
        "timestamp in another zone",
        ["timestamp"],
        [_when("2013-01-31T18:19:56.123456+05:45")],
        "timestamp'2013-01-31 12:34:56.123456Z'",
        -394629246998165117,
    ),
    Vector(
        "timestamp before 1970",
        ["timestamp"],
        [_when("1960-07-01T00:00:00.000001+00:00")],
        "timestamp'1960-07-01 00:00:00.000001Z'",
        7699226494800315192,
    ),
    Vector(
        "timestamp_ntz",
        ["timestamp_ntz"],
        [_when("2013-03-10T02:30:00.5")],
        "timestamp_ntz'2013-03-10 02:30:00.5'",
        281311837179559992,
    ),
    Vector(
        "timestamp_ntz last",
        ["timestamp_ntz"],
        [_when("9999-12-31T23:59:59.999999")],
        "timestamp_ntz'9999-12-31 23:59:59.999999'",
        -3238974501849525030,
    ),
    Vector("empty array", [LONGS], [[]], "array()", 42),
    Vector("array", [LONGS], [[1, None, 3]], "array(1L, null, 3L)", 7452347529957652509),
    Vector("array of strings", [NAMES], [["a", "", "b"]], "array('a', '', 'b')", -6281004358532547057),
    Vector(
        "struct",
        [PLACE],
        [{"city": "Bern", "at": [7, 46]}],
        "named_struct('city', 'Bern', 'at', array(7L, 46L))",
        -246278006432318630,
    ),
    Vector(
        "struct of nulls",
        [PLACE],
        [{"city": None, "at": None}],
        "named_struct('city', cast(null as string), 'at', cast(null as array<bigint>))",
        42,
    ),
    Vector("two columns", ["string", "long"], ["UA", 1545], "'UA', 1545L", -3096318248440197094),
    Vector("two columns swapped", ["long", "string"], [1545, "UA"], "1545L, 'UA'", -4173588899244634785),
    Vector(
        "three columns with a null",
        ["string", "integer", "date"],
        ["UA", None, dt.date(2013, 1, 1)],
        "'UA', cast(null as int), date'2013-01-01'",
        -700477390579002540,
    ),
    Vector("a null first", ["string", "integer"], [None, 7], "cast(null as string), 7", 2786828215451145335),
    Vector("only nulls", ["string", "integer"], [None, None], "cast(null as string), cast(null as int)", 42),
]

# Of Kafka's `murmur2`, as signed 32-bit integers: facts of `testMurmur2` in Apache Kafka's
# clients/src/test/java/org/apache/kafka/common/utils/UtilsTest.java; the empty key is of librdkafka's `unittest_murmur2`.
MURMUR2: dict[bytes, int] = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
}
