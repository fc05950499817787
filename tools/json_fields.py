"""Write docs/json.md: what each command of ``spark-partq`` prints with ``--json``, from the classes that say it."""

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
    """An object of JSON: the fields of a class, with `more` that its `to_dict` adds (type, about) and without those that it takes apart."""

    name: str
    of: type
    more: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    without: tuple[str, ...] = ()


DEAD_MESSAGE = Shape(
    "DeadMessage",
    partq.DeadMessage,
    {
        "origin_queue": ("string", "The queue from which it came."),
        "origin_partition": ("integer", "Where it was there."),
        "origin_offset": ("integer", "Where it was there."),
        "origin_enqueued_at": ("string", "When it came there, in ISO 8601."),
        "origin_group": ("string or null", "The group that could not process it; null if its time was over before any group read it."),
        "delivery_count": ("integer or null", "How often it was delivered; null if nobody counted."),
        "dead_reason": ("string", "Why it is dead."),
        "dead_at": ("string", "Since when, in ISO 8601."),
    },
    ("origin",),
)  # fmt: skip
DIAGNOSIS = Shape("Diagnosis", Diagnosis, {"healthy": ("boolean", "No finding is a fault.")})
REPLICA = Shape(
    "ReplicaStatus", partq.ReplicaStatus, {"total_lag": ("integer", "Messages that it lacks, of all partitions.")}
)
HISTORY_FACT = Shape(
    "HistoryFact",
    GroupFact,
    {"seq": ("integer", "Its number in the history, from 0."), "at": ("string", "When it was decided, in ISO 8601, by the clock of who decided.")},
)  # fmt: skip
SHAPES = {shape.of: shape for shape in (DEAD_MESSAGE, DIAGNOSIS, REPLICA)}  # each other class is its own

# What a command prints, and when it is another form.
COMMANDS: dict[str, tuple[str, type | Shape, str]] = {
    "create-queue": ("", shapes.CreatedQueue, ""),
    "delete-queue": ("", shapes.DeletedQueue, ""),
    "list": ("", shapes.Listing, ""),
    "describe-queue": ("", partq.QueueDescription, ""),
    "tail": ("lines of ", shapes.TailedMessage, ""),
    "alter-queue": ("", partq.QueueDescription, "the queue as it is after that"),
    "delete-messages": ("", shapes.DeletedMessages, ""),
    "scale": ("", partq.QueueDescription, "the queue as it is after that"),
    "ingress": ("", partq.QueueDescription, "the queue as it is after that"),
    "copy-stuck": ("", shapes.CopiedMessages, ""),
    "replicate": ("", partq.ReplicaStatus, "of a single pass: neither with `--watch` nor with `--remove`"),
    "promote": ("", partq.Promotion, ""),
    "describe-group": ("", partq.GroupDescription, ""),
    "explain": ("array of ", partq.Explanation, "one for each group; with `--group` the object alone"),
    "reset-offsets": ("array of ", partq.OffsetReset, "with `--dry-run`, too"),
    "rebalance": ("array of ", shapes.Rebalanced, "with `--watch` one a line"),
    "delete-group": ("", shapes.DeletedGroup, ""),
    "history": ("array of ", HISTORY_FACT, "with `--follow` one a line"),
    "check": ("", Progress, ""),
    "dead-letter list": ("array of ", DEAD_MESSAGE, ""),
    "doctor": ("", DIAGNOSIS, ""),
    "maintain": ("array of ", MaintenanceReport, "one for each queue"),
}
REDRIVE = "| `dead-letter redrive` | object of integers; by queue how many messages were put back |"

HEAD = """\
# JSON of the commands

What the commands of [`spark-partq`](commands.md) print with `--json`. `python -m tools.json_fields` makes this page, from the classes that say it. Later
releases add fields, and do not rename or remove one.

Where a class is one of the package, its `to_dict()` in Python gives the same. With `--watch` the commands print one object or array for each look, as one line. The question
that a command asks, its warnings and its errors go to the standard error stream.

In the tables below, "object of integers" is an object whose fields have names that depend on the store, such as those of queues, and integers as values. The numbers of
partitions are texts there, as JSON has no other names. "any" is any value of JSON. A field of which "or absent" is said is not always there. Moments are in UTC.
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
    """The shape, and those of the objects in it."""
    yield shape
    for annotation in annotations(shape).values():
        for inner in _classes(annotation):
            yield from reached(shape_of(inner))


def annotations(shape: Shape) -> dict[str, Any]:
    hints = get_type_hints(shape.of, include_extras=True)
    names = hints if is_typeddict(shape.of) else [field.name for field in dataclasses.fields(shape.of)]
    return {name: hints[name] for name in names if name not in shape.without}


def fields(shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each."""
    about = told(shape.of)
    for name, annotation in annotations(shape).items():
        yield name, text(annotation), about.get(name, "")
    for name, (type_, meaning) in shape.more.items():
        yield name, type_, meaning


def summary(shape: Shape) -> str:
    first = inspect.cleandoc(shape.of.__doc__ or "").split("\n\n")[0]
    return prose(first)


def told(of: type) -> dict[str, str]:
    """What the docstring of a class says of each attribute."""
    _, _, section = inspect.cleandoc(of.__doc__ or "").partition("Attributes\n----------\n")
    found: dict[str, str] = {}
    for names, meaning in re.findall(r"^(\w[\w, ]*) : .*\n((?:^    .*(?:\n|$)|^\n)+)", section, re.MULTILINE):
        found |= dict.fromkeys(names.split(", "), prose(meaning))
    return found


def prose(written: str) -> str:
    told_ = without_codes(" ".join(written.split())).replace("``", "`").replace("|", "\\|")
    return re.sub(r"\bNone\b", "null", told_)


def text(annotation: Any) -> str:
    """How the page says a type."""
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
    """Of an array the type of its items, if it is one."""
    arguments = get_args(annotation)
    if get_origin(annotation) in (list, Sequence) or (get_origin(annotation) is tuple and arguments[-1] is Ellipsis):
        return arguments[0]
    return None


def _values(annotation: Any) -> Any:
    return get_args(annotation)[1] if get_origin(annotation) in (dict, Mapping) else None


def _classes(annotation: Any) -> Iterator[type]:
    """The classes with fields in a type."""
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
