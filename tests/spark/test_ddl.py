"""A schema given as DDL means to a queue what it means to Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import spark_partq as partq
from spark_partq.core.payload.schema import payload_schema

GOOD = [
    "a string, b int, c bigint, d smallint, e tinyint, f float, g double, h boolean, i binary, j date",
    "A STRING, B Int, c LONG, d short, e byte, f real, g integer",
    "a timestamp, b timestamp_ntz, c timestamp_ltz",
    "a decimal, b decimal(5), c decimal(38,18), d dec(3,1), e numeric(18, 0), f decimal ( 4 , 2 )",
    "a array<int>, b array<array<string>>, c map<string,int>, d map<int,array<date>>",
    "a struct<x:int,y:string>, b struct<x: struct<y: array<struct<z:decimal(20,2)>>>>",
    "a struct<x int, y string>",
    "a array<struct<k:map<string,struct<x:timestamp_ntz>>>>",
    "`order-id` string, `a.b` int, `select` date, `ä東` int, `x``y` int",
    "a int, b string comment 'the b', c struct<x:int comment 'i'>",
    "date date, timestamp timestamp, string string, array array<int>, map map<int,int>",
    "  a\tint ,\n b string  ",
    "a int -- a comment\n, b string /* another */",
]


def plain(type_: Any) -> Any:
    """Without metadata, everything nullable: what a queue keeps of a schema."""
    if not isinstance(type_, dict):
        return type_
    if type_["type"] == "struct":
        fields = [
            {"name": f["name"], "type": plain(f["type"]), "nullable": True, "metadata": {}} for f in type_["fields"]
        ]
        return {"type": "struct", "fields": fields}
    return {
        name: True if name in ("containsNull", "valueContainsNull") else plain(value) if name != "type" else value
        for name, value in type_.items()
    }


@pytest.mark.parametrize("ddl", GOOD)
def test_same_as_spark(spark: SparkSession, ddl: str) -> None:
    expected = plain(StructType.fromDDL(ddl).jsonValue())
    assert payload_schema(ddl) == expected
    assert payload_schema(StructType.fromDDL(ddl).jsonValue()) == expected


@pytest.mark.parametrize(
    "ddl",
    [
        "a",
        "a int b",
        "a array",
        "a array<>",
        "a map<int>",
        "a struct<x>",
        "a int(5)",
        "a string(5)",
        "a decimal(5,2,1)",
        "a decimal(-1)",
        "a decimal(x)",
        "a unsigned int",
        "a int unsigned",
        "a json",
        "a time with time zone",
    ],
)
def test_what_spark_refuses_is_refused(spark: SparkSession, ddl: str) -> None:
    with pytest.raises((PySparkException, ValueError)):
        StructType.fromDDL(ddl)
    with pytest.raises(partq.InvalidArgumentError):
        payload_schema(ddl)
