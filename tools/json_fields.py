"""Write docs/json.md: what each command of ``spark-partq`` prints with ``--json``, from the docstrings of the classes that it prints."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import spark_partq as partq
from spark_partq.cli import shapes
from spark_partq.cli.settings import without_codes
from spark_partq.core.group.facts import GroupFact
from spark_partq.storage.inspect.doctor.findings import Diagnosis
from spark_partq.storage.inspect.progress import Progress
from spark_partq.storage.procedures.maintain import MaintenanceReport

PAGE = Path(__file__).parents[1] / "docs" / "json.md"


@dataclasses.dataclass(frozen=True)
class Shape:
    """An object of JSON: the fields of a class, with the fields `more` that its `to_dict` adds (type, meaning), `without` the fields that it replaces."""

    name: str
    of: type
    more: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    without: tuple[str, ...] = ()


DEAD_MESSAGE = Shape(
    "DeadMessage",
    partq.DeadMessage,
    {
        "origin_queue": ("string", "The name of the queue from which the message came."),
        "origin_partition": ("integer", "The partition of the origin queue in which the message was."),
        "origin_offset": ("integer", "The offset of the message in that partition of the origin queue."),
        "origin_enqueued_at": ("string", "When the message was enqueued in the origin queue, in ISO 8601."),
        "origin_group": ("string or null", "The group that could not process the message; null if the message expired before any group read it."),
        "delivery_count": ("integer or null", "How often the message was delivered to the origin group; null if the deliveries were not counted."),
        "dead_reason": ("string", "Why the message is dead."),
        "dead_at": ("string", "When the message became dead, in ISO 8601."),
    },
    ("origin",),
)  # fmt: skip
DIAGNOSIS = Shape("Diagnosis", Diagnosis, {"healthy": ("boolean", "True if no finding is a fault.")})
REPLICA = Shape(
    "ReplicaStatus",
    partq.ReplicaStatus,
    {"total_lag": ("integer", "How many messages of the primary the replica lacks, in all partitions.")},
)
HISTORY_FACT = Shape(
    "HistoryFact",
    GroupFact,
    {"seq": ("integer", "The number of the fact in the group's history, from 0."), "at": ("string", "When the fact was decided, in ISO 8601, by the clock of the process that decided it.")},
)  # fmt: skip
SHAPES = {shape.of: shape for shape in (DEAD_MESSAGE, DIAGNOSIS, REPLICA)}  # other classes add nothing

# What a command prints: the form, the class, and a note.
COMMANDS: dict[str, tuple[str, type | Shape, str]] = {
    "create-queue": ("", shapes.CreatedQueue, ""),
    "delete-queue": ("", shapes.DeletedQueue, ""),
    "list": ("", shapes.Listing, ""),
    "describe-queue": ("", partq.QueueDescription, ""),
    "tail": ("lines of ", shapes.TailedMessage, ""),
    "alter-queue": ("", partq.QueueDescription, "the queue after the change"),
    "delete-messages": ("", shapes.DeletedMessages, ""),
    "scale": ("", partq.QueueDescription, "the queue after the change"),
    "ingress": ("", partq.QueueDescription, "the queue after the change"),
    "copy-stuck": ("", shapes.CopiedMessages, ""),
    "replicate": ("", partq.ReplicaStatus, "for a single pass: without `--watch` and without `--remove`"),
    "promote": ("", partq.Promotion, ""),
    "describe-group": ("", partq.GroupDescription, ""),
    "explain": (
        "array of ",
        partq.Explanation,
        "one object for each group; with `--group` a single object, without an array",
    ),
    "reset-offsets": ("array of ", partq.OffsetReset, "the same with `--dry-run`"),
    "rebalance": ("array of ", shapes.Rebalanced, "with `--watch` one object a line"),
    "delete-group": ("", shapes.DeletedGroup, ""),
    "history": ("array of ", HISTORY_FACT, "with `--follow` one object a line"),
    "check": ("", Progress, ""),
    "dead-letter list": ("array of ", DEAD_MESSAGE, ""),
    "doctor": ("", DIAGNOSIS, ""),
    "maintain": ("array of ", MaintenanceReport, "one object for each queue"),
}
REDRIVE = (
    "| `dead-letter redrive` | object of integers; for each queue, by name, how many messages were put back into it |"
)

HEAD = """\
# JSON of the commands

This page says what the commands of [`spark-partq`](commands.md) print with `--json`. `python -m tools.json_fields` makes it from the classes of the objects. Later
releases add fields, and do not rename or remove a field.

If the class belongs to the package, its `to_dict()` in Python gives the same object. With `--watch` a command prints one line for each look: an object or an array. Its
questions, warnings and errors go to the standard error stream.

In the tables below, "object of integers" is an object with integers as values. The names of its fields depend on the store: they are, for example, names of queues. Partition
numbers are strings there, as JSON allows no other names. "any" is any value of JSON. A field with the type "or absent" may be missing. Times are in UTC.
"""

_PRIMITIVES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", dt.datetime: "string", Any: "any"}  # fmt: skip


def page() -> str:
    lines = [HEAD, "| command | prints |", "|---|---|"]
    found: dict[str, Shape] = {}
    for name, (form, of, note) in COMMANDS.items():
        shape = shape_of(of)
        found |= {one.name: one for one in reached(shape)}
        lines.append(f"| `{name}` | {form}{link(shape)}{'; ' if note else ''}{note} |")
    lines += [REDRIVE, ""]
    for _, shape in sorted(found.items()):
        lines += [f"## {shape.name}", "", summary(shape), "", "| field | type | |", "|---|---|---|"]
        lines += [f"| `{name}` | {type_} | {about} |" for name, type_, about in fields(shape)]
        lines.append("")
    return "\n".join(lines)


def shape_of(of: type | Shape) -> Shape:
    return of if isinstance(of, Shape) else SHAPES.get(of) or Shape(of.__name__, of)


def reached(shape: Shape) -> Iterator[Shape]:
    """The shape, and the shapes of the objects in it."""
    yield shape
    for annotation in annotations(shape).values():
        for inner in _classes(annotation):
            yield from reached(shape_of(inner))


def annotations(shape: Shape) -> dict[str, Any]:
    hints = get_type_hints(shape.of, include_extras=True)
    names = hints if is_typeddict(shape.of) else [field.name for field in dataclasses.fields(shape.of)]
    return {name: hints[name] for name in names if name not in shape.without}


def fields(shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each field."""
    about = told(shape.of)
    for name, annotation in annotations(shape).items():
        yield name, text(annotation), about.get(name, "")
    for name, (type_, meaning) in shape.more.items():
        yield name, type_, meaning


def summary(shape: Shape) -> str:
    first = inspect.cleandoc(shape.of.__doc__ or "").split("\n\n")[0]
    return prose(first)


def told(of: type) -> dict[str, str]:
    """The meaning of each attribute, from the docstring of the class."""
    _, _, section = inspect.cleandoc(of.__doc__ or "").partition("Attributes\n----------\n")
    found: dict[str, str] = {}
    for names, meaning in re.findall(r"^(\w[\w, ]*) : .*\n((?:^    .*(?:\n|$)|^\n)+)", section, re.MULTILINE):
        found |= dict.fromkeys(names.split(", "), prose(meaning))
    return found


def prose(written: str) -> str:
    told_ = without_codes(" ".join(written.split())).replace("``", "`").replace("|", "\\|")
    return re.sub(r"\bNone\b", "null", told_)


def text(annotation: Any) -> str:
    """The type in the words of the page."""
    if get_origin(annotation) is NotRequired:
        return f"{text(get_args(annotation)[0])}, or absent"
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(text(one) for one in get_args(annotation))
    if (inner := _items(annotation)) is not None:
        return f"array of {plural(inner)}"
    if (inner := _values(annotation)) is not None:
        return f"object of {plural(inner)}"
    if annotation in _PRIMITIVES:
        return _PRIMITIVES[annotation]
    return "string" if issubclass(annotation, StrEnum) else link(shape_of(annotation))


def plural(annotation: Any) -> str:
    if _items(annotation) is not None:
        return text(annotation).replace("array", "arrays", 1)
    if get_origin(annotation) is tuple:
        return "arrays"
    return f"{text(annotation)}s" if annotation in _PRIMITIVES and annotation is not Any else text(annotation)


def _items(annotation: Any) -> Any:
    """The type of the items, if the annotation is an array."""
    arguments = get_args(annotation)
    if get_origin(annotation) in (list, Sequence) or (get_origin(annotation) is tuple and arguments[-1] is Ellipsis):
        return arguments[0]
    return None


def _values(annotation: Any) -> Any:
    return get_args(annotation)[1] if get_origin(annotation) in (dict, Mapping) else None


def _classes(annotation: Any) -> Iterator[type]:
    """The classes with fields that occur in a type."""
    if dataclasses.is_dataclass(annotation) or is_typeddict(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from _classes(inner)


def link(shape: Shape) -> str:
    return f"[{shape.name}](#{shape.name.lower()})"


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
