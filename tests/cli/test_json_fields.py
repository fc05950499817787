"""What each command prints with ``--json`` is what docs/json.md says: these fields, of these types, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import spark_partq as partq
from spark_partq.storage.inspect.doctor.findings import Diagnosis
from spark_partq.storage.procedures.promote import Promotion
from tests.cli.outcome import Command
from tests.groups import Consumer, Lasting
from tests.helpers import ROOT
from tests.storage.procedures import test_held_keys
from tools import commands, json_fields

WITHOUT = {"console", "metrics", "demo"}  # they serve or play, and end with nothing to tell
PAGE = (ROOT / "docs" / "json.md").read_text()
PRINTED = dict(re.findall(r"^\| `([a-z -]+)` \| ([^;|]+?)(?:;.*)? \|$", PAGE.split("\n## ")[0], re.MULTILINE))
SHAPES: dict[str, dict[str, str]] = {
    section.split("\n")[0]: dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE))
    for section in PAGE.split("\n## ")[1:]
}
PRIMITIVES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
}


class Checker:
    """Compares values with what the page says; `seen` has the shapes of which there was an object."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def check(self, value: Any, said: str, at: str = "") -> None:
        assert self._is(value, said, at), (at, value, said)

    def _is(self, value: Any, said: str, at: str) -> bool:
        alternatives = said.split(" or ")
        if len(alternatives) > 1:
            return any(self._is(value, one, at) for one in alternatives)
        outer, of, inner = said.partition(" of ")
        if of and outer.rstrip("s") == "array":
            return isinstance(value, list) and all(self._is(one, inner, f"{at}[]") for one in value)
        if of:
            assert outer == "object", said
            return isinstance(value, dict) and all(self._is(one, inner, f"{at}.*") for one in value.values())
        if shape := re.fullmatch(r"\[(\w+)\]\(#\w+\)", said):
            return isinstance(value, dict) and self._has_fields(value, shape[1], at)
        if said == "any":
            return True
        types = PRIMITIVES[said.rstrip("s")]
        return isinstance(value, types) and (bool in types or not isinstance(value, bool))

    def _has_fields(self, value: dict[str, Any], shape: str, at: str) -> bool:
        self.seen.add(shape)
        fields = SHAPES[shape]
        assert value.keys() <= fields.keys(), (at, value.keys() - fields.keys())
        for name, said in fields.items():
            needed = said.removesuffix(", or absent")
            assert name in value or needed != said, f"{at}.{name} is not there"
            if name in value:
                self.check(value[name], needed, f"{at}.{name}")
        return True


def test_the_page_is_that_of_the_classes() -> None:
    assert json_fields.PAGE.read_text() == json_fields.page(), "python -m tools.json_fields writes it anew"
    for name, fields in SHAPES.items():
        assert fields, name
    assert not re.findall(r"^\| `\w+` \| .* \|  ?\|$", PAGE, re.MULTILINE), "a field of which nothing is said"


def test_each_command_has_json_and_is_on_the_page() -> None:
    found = dict(commands.commands(typer.Context(commands.COMMAND)))
    with_json = {name for name, one in found.items() if any("--json" in p.opts for p in one.command.params)}
    assert found.keys() - with_json == WITHOUT
    assert with_json == PRINTED.keys()


LINES = """
create-queue new --schema 'k string, at timestamp' --key k --partitions 2
create-queue new --schema 'k string, at timestamp' --key k --partitions 2 --exist-ok
list
describe-queue q
tail q
alter-queue q --set retention_ms=7d
dead-letter list q
describe-group g
explain q 0
explain q 0 --group g
history g
check g --within 0
MEMBER LEAVES
rebalance --group h
ingress disable q
dead-letter redrive q
ingress enable q
reset-offsets g --to earliest --dry-run
reset-offsets g --to earliest --yes
scale q 3
scale solo 2
copy-stuck solo
delete-messages q --key k=k3 --yes
maintain
doctor
replicate solo --to THERE
--store THERE promote solo
delete-group g --yes
list
delete-queue new --yes
DAMAGE
doctor
"""


def test_all_commands_print_what_the_page_says(command: Command, run: Command, store: str, tmp_path: Path) -> None:
    """On a store with dead messages, a group with a member, a queue that was exclusive, a replica, and in the end a damaged group."""
    test_held_keys.make(store)
    test_held_keys.Producing(store).put(*test_held_keys.MANY)
    test_held_keys.Query(store, {7}).run()
    partq.create_queue(store, "solo", "v bigint", partitions=0)
    member, checker, ran = Lasting(store, "b"), Checker(), set()
    for line in LINES.strip().splitlines():
        if line == "MEMBER LEAVES":
            member.leave()
            Consumer(store, "c", group="h", session_timeout_ms=300)  # whom `rebalance` takes out
            continue
        if line == "DAMAGE":
            Consumer(store, "d", group="h")
            for file in Path(store, "groups/h/control").glob("*.parquet"):
                file.unlink()
            continue
        arguments = [
            word.strip("'") for word in re.findall(r"'[^']*'|\S+", line.replace("THERE", str(tmp_path / "there")))
        ]
        outcome = run(*arguments, "--json") if line.startswith("--store") else command(*arguments, "--json")
        name = next(name for name in sorted(PRINTED, key=len, reverse=True) if re.search(rf"(^| ){name}( |$)", line))
        said = PRINTED[name]
        assert outcome.code in (0, 1) and not outcome.err.startswith("error"), (line, outcome)
        if name == "explain" and "--group" in line:
            said = said.removeprefix("array of ")
        if said.startswith("lines of "):
            for one in outcome.out.splitlines():
                checker.check(json.loads(one), said.removeprefix("lines of "), line)
        else:
            checker.check(json.loads(outcome.out), said, line)
        ran.add(name)
    assert ran == PRINTED.keys()
    assert checker.seen == SHAPES.keys()


@pytest.mark.parametrize("state", ["Rebalancing", "Empty", "Dead"])
def test_groups(command: Command, store: str, living: Consumer, state: str) -> None:
    """One with members and a handoff, an empty one, and one that was deleted."""
    if state == "Rebalancing":
        Consumer(store, "b", session_timeout_ms=600_000, pattern=".*")
        living.end_holddown()
    else:
        living.leave()
    if state == "Dead":
        partq.delete_group(store, "g")
    found = json.loads(command("describe-group", "g", "--json").out)
    assert found["state"] == state
    Checker().check(found, PRINTED["describe-group"])


def test_a_wrong_value_is_found() -> None:
    """The check itself can fail: a field that is missing, one too many, and one of another type."""
    right = Promotion("q", "there", True).to_dict()
    Checker().check(right, PRINTED["promote"])
    for wrong in ({**right, "fenced": 1}, {**right, "more": 1}, {"queue": "q"}, {**right, "floors": [1]}, None):
        with pytest.raises(AssertionError):
            Checker().check(wrong, PRINTED["promote"])
    with pytest.raises(AssertionError):
        Checker().check({**Diagnosis("s").to_dict(), "findings": [{}]}, PRINTED["doctor"])
