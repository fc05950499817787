"""Malformed rows of text files, which cannot be read as the columns that they should have: what Spark does with them, and how errors report them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import typer
from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException

from spark_partq.core.errors import SchemaMismatchError

Malformed = Literal["fail", "drop", "null"]

# Spark's names of the modes. Spark's own default is PERMISSIVE: a value that cannot be read becomes null without any message.
_MODES: Mapping[Malformed, str] = {"fail": "FAILFAST", "drop": "DROPMALFORMED", "null": "PERMISSIVE"}
_FORMATS = "csv", "json", "xml"
_MOST_CHARACTERS = 300  # of a row or a reason in an error
_OF_HEADER = "CSV header"  # Spark's error has this text if a header has other or more columns, or another order


def read_mode(format: str, malformed: Malformed | None, options: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's reader that say what becomes of malformed rows, and that a header must name the columns.

    Empty if the format has no malformed rows.

    Parameters
    ----------
    malformed : {"fail", "drop", "null"}, optional
        None means "fail", unless `options` set a mode.
    options : dict
        Options of the reader, as a user gave them.

    Raises
    ------
    typer.BadParameter
        If `malformed` is given and has no meaning for this format, or if `options` set the mode, too.
    """
    is_text, has_mode = format.lower() in _FORMATS, "mode" in {name.lower() for name in options}
    if malformed is not None and not is_text:
        raise typer.BadParameter(f"--malformed is for the formats {', '.join(_FORMATS)}, and not for {format}")
    if malformed is not None and has_mode:
        raise typer.BadParameter(
            "--source-option mode also says what becomes of malformed rows; give it or --malformed, and not both"
        )
    added = {"mode": _MODES[malformed or "fail"]} if is_text and not has_mode else {}
    if format.lower() == "csv" and "enforceschema" not in {name.lower() for name in options}:
        added["enforceSchema"] = "false"  # else a header that names other columns, or in another order, is not read
    return added


@contextmanager
def malformed_told() -> Iterator[None]:
    """Turn Spark's error about a malformed row into one of our errors, in one line, with the file, the row and the reason.

    Raises
    ------
    SchemaMismatchError
    """
    try:
        yield
    except (Py4JJavaError, CapturedException) as error:
        causes = _causes(error)
        told = next((said for cause in causes if _OF_HEADER in (said := str(cause.getMessage()))), None)
        if told is not None:
            raise SchemaMismatchError(
                f"the header of a CSV file does not name the columns, or not in their order. Nothing of this micro-batch was written. Mend the file, or give the "
                f"columns in the order of the file (--schema). The reader says: {_short(told)}",
                file=told.rpartition(" ")[2],
            ) from None
        row = _parameter(causes, "MALFORMED_RECORD_IN_PARSING", "badRecord")
        if row is None:
            raise
        path = _parameter(causes, "FAILED_READ_FILE", "path")
        raise SchemaMismatchError(
            f"a row of {path or 'a file that Spark does not name'} is not of the columns; as far as it can be read it is {_short(row)}. Nothing of this "
            "micro-batch was written. Mend the file and start the job again, or say what becomes of such rows: --malformed drop, or --malformed null, "
            f"which writes null for each value that cannot be read. The reader says: {_short(str(causes[-1].getMessage()))}",
            file=path,
            row=_short(row),
        ) from None


def _causes(error: Py4JJavaError | CapturedException) -> list[Any]:
    """Java's exceptions, from the outermost to the first that happened."""
    found = []
    cause: Any = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
    while cause is not None:
        found.append(cause)
        cause = cause.getCause()
    return found


def _parameter(causes: list[Any], condition: str, name: str) -> str | None:
    """The value of that parameter in the exception with that condition, if there is such an exception."""
    for cause in causes:
        is_spark = is_instance_of(SparkContext._gateway, cause, "org.apache.spark.SparkThrowable")
        if is_spark and str(cause.getCondition()).partition(".")[0] == condition:
            return str(cause.getMessageParameters().get(name))
    return None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"
