"""Spark DDL such as ``order_id string, amount double`` as Spark's JSON form, without a Spark session."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterable
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from spark_partq.core.errors import InvalidArgumentError

Struct = dict[str, Any]

_DDL_TYPES = {
    exp.DataType.Type.TEXT: "string",
    exp.DataType.Type.INT: "integer",
    exp.DataType.Type.BIGINT: "long",
    exp.DataType.Type.SMALLINT: "short",
    exp.DataType.Type.TINYINT: "byte",
    exp.DataType.Type.FLOAT: "float",
    exp.DataType.Type.DOUBLE: "double",
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.BINARY: "binary",
    exp.DataType.Type.DATE: "date",
    # sqlglot's names: Spark's TIMESTAMP is an instant ("with local time zone"), TIMESTAMP_NTZ is not
    exp.DataType.Type.TIMESTAMPLTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPTZ: "timestamp",
    exp.DataType.Type.TIMESTAMP: "timestamp",
    exp.DataType.Type.TIMESTAMPNTZ: "timestamp_ntz",
}

# The parser would log the text that it does not understand, which then is refused anyway. Whoever else uses it in this process is told.
_parses_ours = contextvars.ContextVar("_parses_ours", default=False)
logging.getLogger("sqlglot").addFilter(lambda _: not _parses_ours.get())

# Read and then refused by name (a collation), or of no effect: a queue's columns have no comments.
_CONSTRAINTS = (exp.CommentColumnConstraint, exp.CollateColumnConstraint)


def parse_ddl(ddl: str) -> Struct:
    """The columns as Spark would read them; whether a queue can have them is checked by `core.payload.schema`.

    Raises
    ------
    InvalidArgumentError
        If it is no list of columns.
    """
    try:
        statement = _parsed(ddl)
        only_columns = isinstance(statement, exp.Create) and {k for k, v in statement.args.items() if v} == {
            "this",
            "kind",
        }
        if only_columns and all(isinstance(c, exp.ColumnDef) for c in statement.this.expressions):
            return _struct_of(statement.this.expressions)
        reason = "it is a list of columns, each a name and a type"
    except SqlglotError as error:
        reason = str(error).splitlines()[0]
    except RecursionError:
        raise InvalidArgumentError(
            "the schema is nested too deeply; put what is inside into a text or other columns", schema=f"{ddl[:100]}…"
        ) from None
    except (IndexError, ValueError):
        reason = "a type has too few or wrong parameters"
    raise InvalidArgumentError(
        f"schema {ddl!r} is not Spark DDL such as 'order_id string, amount decimal(10,2)': {reason}", schema=ddl
    )


def _parsed(ddl: str) -> exp.Expr:
    before = _parses_ours.set(True)
    try:
        # On a line of its own, so that no comment in it hides the bracket
        return sqlglot.parse_one(f"CREATE TABLE t (\n{ddl}\n)", read="spark")
    finally:
        _parses_ours.reset(before)


def _struct_of(columns: Iterable[exp.Expression]) -> Struct:
    return {"type": "struct", "fields": [_field_of(c) for c in columns]}


def _field_of(column: exp.Expression) -> Struct:
    kind = column.args.get("kind")
    if kind is None:
        raise InvalidArgumentError(f"column {column.name!r} has no type", column=column.name)
    for constraint in column.args.get("constraints") or ():
        if isinstance(constraint.kind, exp.NotNullColumnConstraint):
            raise InvalidArgumentError(
                f"column {column.name!r}: a queue does not check its messages, so each column may hold nulls; leave NOT NULL out, and "
                "filter the DataFrame before it is written",
                column=column.name,
            )
        if not isinstance(constraint.kind, _CONSTRAINTS):
            raise InvalidArgumentError(
                f"column {column.name!r}: a queue has no {constraint.sql(dialect='spark')}; give a name and a type only",
                column=column.name,
            )
    collations = {"__COLLATIONS": column.name} if column.find(exp.CollateColumnConstraint) else {}
    return {"name": column.name, "type": _type_of(kind), "nullable": True, "metadata": collations}


def _type_of(kind: exp.DataType) -> Any:
    inner = kind.expressions
    match kind.this:
        case exp.DataType.Type.DECIMAL:
            precision, scale, *more = [*(int(p.name) for p in inner), *([10, 0][len(inner) :])]
            if more:
                raise ValueError
            return f"decimal({precision},{scale})"
        case exp.DataType.Type.ARRAY | exp.DataType.Type.LIST:
            return {"type": "array", "elementType": _type_of(inner[0]), "containsNull": True}
        case exp.DataType.Type.MAP:
            key, value = map(_type_of, inner)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case exp.DataType.Type.STRUCT:
            return _struct_of(inner)
        case _ if kind.this in _DDL_TYPES and not inner:
            return _DDL_TYPES[kind.this]
        case exp.DataType.Type() as unknown:  # by its own name: sqlglot would write some as a type that a queue has
            parameters = ",".join(p.name for p in inner)
            return f"{unknown.value.lower()}({parameters})" if inner else unknown.value.lower()
        case _:
            return kind.sql(dialect="spark").lower()
