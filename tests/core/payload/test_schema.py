"""Payload schemas (tests/spark/test_ddl.py compares the parser with Spark's own)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.payload.schema import (
    MAX_DEPTH,
    MAX_NEW_DEPTH,
    RESERVED,
    check_same_columns,
    forbids_nulls_inside,
    payload_schema,
    to_json,
    type_name,
)


def fields(struct: dict[str, Any]) -> dict[str, Any]:
    return {f["name"]: f["type"] for f in struct["fields"]}


def field(name: str, type_: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def test_types() -> None:
    struct = payload_schema("a string, b bigint, c decimal(20, 3), d array<struct<x:int,y:map<string,date>>>")
    assert fields(struct) | {"d": None} == {"a": "string", "b": "long", "c": "decimal(20,3)", "d": None}
    assert type_name(fields(struct)["d"]) == "array<struct<x:integer,y:map<string,date>>>"


@pytest.mark.parametrize("name", ["a-b", "1st", "größe", "a`b", "a.b"])
def test_a_name_that_is_no_word_is_quoted(name: str) -> None:
    """What is told as a type can be read as one."""
    struct = payload_schema(
        {"type": "struct", "fields": [field("s", {"type": "struct", "fields": [field(name, "long")]})]}
    )
    told = type_name(struct)[len("struct<") : -1]
    assert payload_schema(told.replace(":", " ", 1)) == struct


def test_everything_becomes_nullable_without_metadata() -> None:
    given = {
        "type": "struct",
        "fields": [
            field("a", "long", False, comment="x"),
            field("b", {"type": "array", "elementType": "long", "containsNull": False}, False),
        ],
    }
    assert payload_schema(given) == payload_schema("a bigint, b array<bigint>")


BAD = {
    "empty": ("", "at least one|not Spark DDL"),
    "blank": ("  ", "at least one|not Spark DDL"),
    "no type": ("a", "no type|not Spark DDL"),
    "one without a type": ("a int, b", "'b' has no type|not Spark DDL"),
    "unknown type": ("a frob", "cannot be kept|not Spark DDL"),
    "interval": ("a interval", "cannot be kept|not Spark DDL"),
    "interval day": ("a interval day to second", "cannot be kept|not Spark DDL"),
    "variant": ("a variant", "cannot be kept"),
    "void": ("a void", "cannot be kept|not Spark DDL"),
    "char": ("a char(3)", "cannot be kept"),
    "varchar": ("a varchar(3)", "cannot be kept"),
    "inner unknown type": ("a array<struct<x:frob>>", "cannot be kept|not Spark DDL"),
    "twice": ("a int, a string", "occur twice"),
    "twice by case": ("a int, A string", "occur twice"),
    "twice inside": ("s struct<x:int,X:int>", "occur twice"),
    "reserved": ("a int, _offset bigint", "_offset"),
    "reserved by case": ("a int, _Offset bigint", "_Offset"),
    "space": ("`a b` int", "spaces"),
    "inner space": ("s struct<`a b`:int>", "spaces"),
    "semicolon": ("`a;b` int", "spaces"),
    "decimal too wide": ("a decimal(39,0)", "decimal"),
    "decimal scale": ("a decimal(5,6)", "decimal"),
    "decimal without digits": ("a decimal(0,0)", "decimal"),
    "struct without fields": ("a struct<>", "not Spark DDL"),
    "unbalanced": ("a array<int", "not Spark DDL|cannot be kept"),
    "a statement": ("a int); drop table x; --", "not Spark DDL"),
    "closed early": ("a int) using parquet --", "not Spark DDL"),
    "as select": ("a int) as select 1 --", "not Spark DDL"),
    "commented out": ("a int) /*", "not Spark DDL"),
    "table properties": ("a int) tblproperties ('a'='b'", "not Spark DDL"),
    "default": ("a int default 5", "has no DEFAULT 5"),
    "generated": ("a int, b int generated always as (a)", "has no"),
    "constraint": ("a int, primary key (a)", "not Spark DDL"),
    "collation": ("a string collate UTF8_LCASE", "collation|cannot be kept|not Spark DDL"),
}


@pytest.mark.parametrize(("ddl", "says"), BAD.values(), ids=BAD.keys())
def test_bad_schemas(store: str, ddl: str, says: str) -> None:
    with pytest.raises(partq.InvalidArgumentError, match=says):
        partq.create_queue(store, "q", ddl)
    with pytest.raises(partq.NotAStoreError):
        partq.list_queues(store)


BAD_JSON = {
    "no struct": {"type": "array", "elementType": "long"},
    "no fields": {"type": "struct", "fields": []},
    "nothing": {},
    "a list": [],
    "none": None,
    "collation": {"type": "struct", "fields": [field("a", "string", __COLLATIONS={"a": "ICU.UNICODE_CI"})]},
    "user type": {"type": "struct", "fields": [field("a", {"type": "udt", "class": "x"})]},
    "inner collation": {
        "type": "struct",
        "fields": [field("s", {"type": "struct", "fields": [field("a", "string", __COLLATIONS={"a": "x"})]})],
    },
    "broken decimal": {"type": "struct", "fields": [field("a", "decimal(x)")]},
    "field without a name": {"type": "struct", "fields": [{"type": "long"}]},
    "string for a field": {"type": "struct", "fields": ["a"]},
    "array without elements": {"type": "struct", "fields": [field("a", {"type": "array"})]},
    "struct without fields": {"type": "struct", "fields": [field("a", {"type": "struct", "fields": []})]},
    "type is a number": {"type": "struct", "fields": [field("a", 5)]},
    "empty name": {"type": "struct", "fields": [field("", "long")]},
}


@pytest.mark.parametrize("struct", BAD_JSON.values(), ids=BAD_JSON.keys())
def test_bad_structs(store: str, struct: Any) -> None:
    with pytest.raises(partq.InvalidArgumentError):
        partq.create_queue(store, "q", struct)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_reserved_columns(name: str) -> None:
    for spelt in (name, name.upper()):
        with pytest.raises(partq.InvalidArgumentError, match="every queue uses itself"):
            payload_schema(f"a int, `{spelt}` string")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (["c"], "'c' is not in the schema"),
        (["A"], "'A' is not in the schema"),
        (["a", "a"], "twice"),
        (["m"], "map"),
        (["s"], "map"),
        (["l"], "map"),
        ([""], "not in the schema"),
    ],
    ids=str,
)
def test_bad_keys(store: str, key: list[str], says: str) -> None:
    """Q2: a key must be columns that Spark can hash."""
    ddl = "a int, m map<string,int>, s struct<m:map<string,int>>, l array<map<string,int>>"
    with pytest.raises(partq.InvalidArgumentError, match=says):
        partq.create_queue(store, "q", ddl, key=key)
    with pytest.raises(partq.NotAStoreError):
        partq.list_queues(store)


def test_same_columns_in_any_order() -> None:
    check_same_columns(payload_schema("a int, b string"), payload_schema("b string, a int"), "x", "y")


def test_whether_there_may_be_nulls_makes_no_other_columns() -> None:
    """Spark says of many expressions that they hold none, at any depth."""
    ddl = "a array<array<int>>, m map<int,map<int,date>>, s struct<x:array<struct<y:int>>>"
    strict = json.loads(json.dumps(payload_schema(ddl)).replace("true", "false"))
    check_same_columns(payload_schema(ddl), strict, "x", "y")
    assert payload_schema(strict) == payload_schema(ddl)


def test_a_schema_is_stored_without_spaces() -> None:
    """As Spark writes it."""
    assert to_json(payload_schema("a int")) == (
        '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true,"metadata":{}}]}'
    )


def strict_array(strict: bool, element: Any = "long") -> Any:
    return {"type": "array", "elementType": element, "containsNull": not strict}


def strict_map(strict: bool, key: Any = "string", value: Any = "long") -> Any:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": not strict}


def strict_struct(strict: bool, type_: Any = "long") -> Any:
    fields = [field("a", "long"), {**field("b", type_), "nullable": not strict}]
    return {"type": "struct", "fields": fields}


@pytest.mark.parametrize("type_", [strict_array, strict_map, strict_struct])
def test_a_type_that_forbids_nulls_inside(type_: Any) -> None:
    """At any depth, also in the key of a map."""
    assert forbids_nulls_inside(type_(True)) and not forbids_nulls_inside(type_(False))
    for inner in (strict_array, strict_map, strict_struct):
        assert forbids_nulls_inside(type_(False, inner(True)))
        assert not forbids_nulls_inside(type_(False, inner(False)))
        assert forbids_nulls_inside(strict_map(False, value=type_(False, inner(True))))
    assert not forbids_nulls_inside("long")
    assert not forbids_nulls_inside({"type": "udt", "class": "a.Point", "sqlType": "string"})


def test_comments_have_no_effect() -> None:
    assert payload_schema("a int comment 'the a', b struct<x:int comment 'i'>") == payload_schema(
        "a int, b struct<x:int>"
    )


@pytest.mark.parametrize("ddl", ["a int, b int not null", "a int, s struct<b:int not null>"])
def test_not_null_is_refused_as_nobody_checks_it(ddl: str) -> None:
    with pytest.raises(partq.InvalidArgumentError, match=r"column 'b': .* leave NOT NULL out"):
        payload_schema(ddl)


def test_a_dataframe_whose_columns_happen_to_hold_no_nulls_has_a_schema() -> None:
    never_null = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": False, "metadata": {}}]}
    assert payload_schema(never_null) == payload_schema("a bigint")


@pytest.mark.parametrize("type_", ["time", "time(6)", "variant", "interval", "char(3)", "varchar(3)", "nvarchar"])
def test_a_type_of_spark_that_a_queue_cannot_keep_is_refused_by_its_name(type_: str) -> None:
    with pytest.raises(partq.InvalidArgumentError, match=f"column a: type {re.escape(type_)} cannot be kept"):
        payload_schema(f"a {type_}")


def test_all_differences_are_named() -> None:
    want = payload_schema("a int, b string, c array<bigint>, d date")
    have = payload_schema("b bigint, c array<int>, d date, e double")
    with pytest.raises(partq.SchemaMismatchError) as caught:
        check_same_columns(want, have, "the DataFrame", "queue 'q'")
    text = str(caught.value)
    for part in (
        "missing a integer",
        "extra e double",
        "b is long, not string",
        "c is array<integer>, not array<long>",
    ):
        assert part in text


def test_column_that_occurs_twice() -> None:
    twice = {"type": "struct", "fields": [field("a", "integer"), field("a", "integer")]}
    with pytest.raises(partq.SchemaMismatchError, match="occurs twice"):
        check_same_columns(payload_schema("a int"), twice, "x", "y")


def nested(levels: int) -> Any:
    """A type that is so many levels deep, of arrays, maps and structs in turn."""
    type_: Any = "integer"
    for level in range(levels - 1):
        around = [
            {"type": "array", "elementType": type_, "containsNull": True},
            {"type": "map", "keyType": "string", "valueType": type_, "valueContainsNull": True},
            {"type": "struct", "fields": [field("x", type_)]},
        ]
        type_ = around[level % 3]
    return type_


def test_deep_schema() -> None:
    """The deepest one that is taken can be kept and read; all deeper ones are refused, in either form."""
    deepest = {"type": "struct", "fields": [field("a", nested(MAX_DEPTH))]}
    assert payload_schema(deepest) == deepest
    assert payload_schema(f"a {type_name(nested(MAX_DEPTH))}") == deepest
    for levels in (MAX_DEPTH + 1, 100, 300, 2_000):
        for schema in (
            {"type": "struct", "fields": [field("a", nested(levels))]},
            f"a {'array<' * (levels - 1)}int{'>' * (levels - 1)}",
        ):
            with pytest.raises(partq.InvalidArgumentError, match="nested"):
                payload_schema(schema)


def test_a_queue_with_a_deep_schema(tmp_path: Path) -> None:
    """Not even its folder is made if it is refused. Queues of earlier releases may be deeper."""
    with pytest.raises(partq.InvalidArgumentError, match="nested more than 32 levels deep"):
        partq.create_queue(tmp_path / "s", "q", {"type": "struct", "fields": [field("a", nested(MAX_NEW_DEPTH + 1))]})
    assert list(tmp_path.iterdir()) == []
    partq.create_queue(
        tmp_path / "s", "q", {"type": "struct", "fields": [field("a", nested(MAX_NEW_DEPTH))]}, partitions=1
    )
    partq.maintain(tmp_path / "s")
    found = partq.describe_queue(tmp_path / "s", "q")
    assert found.name == "q"
