"""Mutants: the code of one file with one small change, made by the operators of mutmut.

mutmut draws no sample, and it leaves out what has a decorator, which here is each state and each fact. So its operators are
used without its runner. Only the bodies of functions have mutants: what runs when a module is imported has none.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

from tests.mutants import ROOT

UNDER = (
    "spark_partq/core",
    "spark_partq/storage/group",
    "spark_partq/storage/log",
    "spark_partq/storage/procedures",
    "spark_partq/storage/queue",
    "spark_partq/storage/replica",
)
# Texts, and a picture for the documents.
NOT_MUTATED = {"spark_partq/core/errors.py", "spark_partq/core/diagram.py"}

# Calls with an argument for people, at this place: what is broken, why a status changed, the name of a value that is wrong.
_TEXT_AT = {"check_name": 0} | dict.fromkeys(
    (
        "must_hold", "_must", "change_status", "_given", "body_of", "whole", "whole_or_none", "positive", "text",
        "text_or_none", "texts", "flag", "name", "offsets_by_partition", "partition_number",
    ),
    1,
)  # fmt: skip
_FOR_PEOPLE = {"debug", "info", "warning", "error", "exception"}
_FOR_TYPES = {"cast", "TypeVar", "NewType", "ParamSpec"}
# Without an argument, or with None, they fail: nothing would be learned.
_NEVER = {"len", "isinstance", "super", "zip"}


@dataclass(frozen=True)
class Mutant:
    """One change. `removed` and `added` are the lines that differ, without what indents them."""

    path: str
    function: str
    line: int
    last_line: int
    first_line: int  # of the statement
    body: tuple[int, int]  # the lines of the function
    operator: str
    number: int  # among those of the file
    removed: str
    added: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.function}"


class MutatedFile:
    """All mutants of a file.

    Parameters
    ----------
    path
        Relative to the repository.
    code
        Of the file as it is, if it is not read from there.
    """

    def __init__(self, path: str, code: str | None = None) -> None:
        self.path = path
        self.code = (ROOT / path).read_text() if code is None else code

    @cached_property
    def _found(self) -> tuple[cst.Module, list[tuple[_Place, cst.CSTNode, cst.CSTNode]]]:
        wrapper = MetadataWrapper(cst.parse_module(self.code))
        visitor = _Visitor()
        wrapper.visit(visitor)
        return wrapper.module, visitor.found

    @cached_property
    def count(self) -> int:
        return len(self._found[1])

    def mutated(self, number: int) -> str:
        """The code of a mutant."""
        module, found = self._found
        _, node, instead = found[number]
        changed = module.deep_replace(node, instead)
        assert isinstance(changed, cst.Module)
        return changed.code

    def mutant(self, number: int) -> Mutant:
        place = self._found[1][number][0]
        removed, added = _difference(self.code, self.mutated(number))
        return Mutant(
            self.path,
            place.function,
            place.line,
            place.last_line,
            place.first_line,
            place.body,
            place.operator,
            number,
            removed,
            added,
        )

    def mutants(self) -> Iterator[Mutant]:
        return (self.mutant(number) for number in range(self.count))


def files(under: tuple[str, ...] = UNDER) -> list[str]:
    """The files that mutants are made of, in or at the given paths."""
    found: set[Path] = set()
    for path in under:
        place = ROOT / path
        found |= set(place.rglob("*.py")) if place.is_dir() else {place}
    return sorted(name for path in found if (name := str(path.relative_to(ROOT))) not in NOT_MUTATED)


@dataclass(frozen=True)
class _Place:
    function: str
    line: int
    last_line: int
    first_line: int
    body: tuple[int, int]
    operator: str


class _Visitor(cst.CSTVisitor):
    """Collects what the operators make of each node, except of texts, logging and types."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[_Place, cst.CSTNode, cst.CSTNode]] = []
        self._names: list[str] = []
        self._bodies: list[tuple[int, int]] = []
        self._statements: list[int] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_skipped(node) or (isinstance(node, cst.Parameters) and len(self._bodies) < 2):
            return False
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self._names.append(node.name.value)
        position = self.get_metadata(PositionProvider, node, None)
        if position:
            if isinstance(node, cst.FunctionDef):
                self._bodies.append((position.start.line, position.end.line))
            if isinstance(node, (cst.BaseStatement, cst.SimpleStatementLine)):
                self._statements.append(position.start.line)
            if self._bodies and not isinstance(node, cst.FunctionDef):
                self._mutate(node, position.start.line, position.end.line)
        if isinstance(node, cst.Call) and _name(node.func) in _TEXT_AT:
            for place, argument in enumerate(node.args):
                if place != _TEXT_AT[_name(node.func)]:
                    argument.visit(self)
            return False
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if _is_skipped(original_node):
            return
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef)):
            self._names.pop()
        if isinstance(original_node, cst.FunctionDef):
            self._bodies.pop()
        if isinstance(original_node, (cst.BaseStatement, cst.SimpleStatementLine)):
            self._statements.pop()

    def _mutate(self, node: cst.CSTNode, line: int, last_line: int) -> None:
        if isinstance(node, cst.Call) and _name(node.func) in {*_NEVER, *_TEXT_AT}:
            return
        first, body = self._statements[-1], self._bodies[-1]
        for of, operator in mutation_operators:
            if isinstance(node, of):
                place = _Place(
                    ".".join(self._names), line, last_line, first, body, operator.__name__.removeprefix("operator_")
                )
                self.found += [(place, node, instead) for instead in operator(node) if not instead.deep_equals(node)]


def _is_skipped(node: cst.CSTNode) -> bool:
    """Is the code for people, for type checkers, or without an effect of its own?"""
    match node:
        case cst.Raise() | cst.Assert() | cst.Decorator() | cst.Annotation() | cst.Import() | cst.ImportFrom():
            return True
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
            return True
        case cst.If(test=cst.Name(value="TYPE_CHECKING")):
            return True
        case cst.Arg(keyword=cst.Name(value="strict")):  # it asserts what always holds
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__all__" | "__slots__" | "_log"))]):
            return True
        case cst.Assign(value=cst.Subscript(value=cst.Name(value="Literal" | "Callable" | "NDArray"))):
            return True
        case cst.ClassDef(bases=bases):
            return any(_name(base.value) == "Protocol" for base in bases)
        case cst.Call(func=cst.Attribute(value=cst.Name(value="_log"), attr=cst.Name(value=level))):
            return level in _FOR_PEOPLE
        case cst.Call(func=func):
            name = _name(func)
            return name in _FOR_TYPES or name.endswith("Error")
    return False


def _name(node: cst.BaseExpression) -> str:
    match node:
        case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)):
            return name
        case cst.Subscript(value=value):
            return _name(value)
    return ""


def _difference(before: str, after: str) -> tuple[str, str]:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    removed = [line[1:].strip() for line in lines if line.startswith("-")]
    added = [line[1:].strip() for line in lines if line.startswith("+")]
    return " ".join(removed), " ".join(added)
