"""What the parser makes of DDL, without Spark (tests/spark/test_ddl.py compares it with Spark's own)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import sqlglot

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.payload.ddl import parse_ddl


def field(name: str, type_: Any, **metadata: str) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


@pytest.mark.parametrize(
    ("ddl", "type_"),
    [
        ("decimal", "decimal(10,0)"),
        ("decimal(5)", "decimal(5,0)"),
        ("decimal(5,2)", "decimal(5,2)"),
        ("BIGINT", "long"),
        ("timestamp", "timestamp"),
        ("array<int>", {"type": "array", "elementType": "integer", "containsNull": True}),
        ("map<int,date>", {"type": "map", "keyType": "integer", "valueType": "date", "valueContainsNull": True}),
        ("struct<x:int comment 'i', y: string>", struct(field("x", "integer"), field("y", "string"))),
        ("interval year to month", "interval year to month"),  # what no queue has keeps its name
        ("Geometry", "geometry"),
        ("varchar(5)", "varchar(5)"),
        ("int(5)", "int(5)"),
    ],
)
def test_a_type(ddl: str, type_: Any) -> None:
    assert parse_ddl(f"a {ddl}, b string comment 'b'") == struct(field("a", type_), field("b", "string"))


def test_a_collation_is_told() -> None:
    assert parse_ddl("a string collate UTF8_LCASE") == struct(field("a", "string", __COLLATIONS="a"))


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("a", r"'a' is not Spark DDL such as .*: it is a list of columns, each a name and a type$"),
        ("a int) as (select 1", "it is a list of columns, each a name and a type$"),
        ("a decimal(1,2,3)", "a type has too few or wrong parameters$"),
        ("a map<int>", "a type has too few or wrong parameters$"),
        ("a array", "a type has too few or wrong parameters$"),
        ("a foo", r"Expecting \)"),
        ("a int not null", "column 'a': a queue does not check its messages"),
        ("b int primary key", "column 'b': a queue has no PRIMARY KEY"),
    ],
)
def test_what_is_refused(ddl: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        parse_ddl(ddl)


@pytest.mark.parametrize("ddl", ["a int) foo bar", "a int) using (x) baz", "a string) SECRET SECRET ("])
def test_a_refusal_is_one_error_and_no_line_in_the_log(
    ddl: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The parser would log the whole text, also where nobody has set up a log."""
    with caplog.at_level(logging.DEBUG), pytest.raises(InvalidArgumentError):
        parse_ddl(ddl)
    assert caplog.records == [] and capfd.readouterr() == ("", "")


def test_who_parses_other_sql_is_still_told(caplog: pytest.LogCaptureFixture) -> None:
    """Only its own call is silent, not the parser in the rest of the process."""
    parse_ddl("a int")
    sqlglot.parse_one("CREATE TABLE t (a int) foo bar", read="spark")
    assert "unsupported syntax" in caplog.text
