"""Bad input: each row ends with the one error that docs/errors.md says, and changes nothing."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_partq.core.errors import CorruptTableError, PartqError
from spark_partq.storage.upkeep import UPKEEP
from tests import queries
from tests.cli.conftest import run  # noqa: F401
from tests.cli.outcome import Command
from tests.refused.case import Case
from tests.refused.cases import EVERY, SECTIONS
from tests.refused.world import LIMITS, NOBODYS, World, evaluated, folder_for_all, limited

pytestmark = pytest.mark.usefixtures("ended_queries")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with folder_for_all() as path:
        yield path


@pytest.fixture(scope="module")
def made(folder: Path) -> World:
    world = World.made(folder / "made")
    UPKEEP.wait()
    return world


def prepared(case: Case, made: World, folder: Path) -> World:
    """A copy for this row."""
    world = made.copied(folder)
    if case.prepare is not None:
        case.prepare(world)
        UPKEEP.wait()
    return world


def names_places(text: str, world: World) -> str:
    for place, name in ((world.there, "THERE"), (world.store, "STORE"), (str(world.folder), "FOLDER")):
        text = text.replace(place, name)
    return re.sub(r"[^\s\[]*[0-9a-f]{32}\.parquet", "FILE", text)


def assert_unchanged(before: dict[str, bytes | str], world: World, case: Case) -> None:
    """A query that fails later may have joined its group; what it reads stays as it is."""
    queries.stop_all()
    UPKEEP.wait()
    joins = "consume(" in case.given or case.prepare_name == "a_member_that_beats"
    left, found = (
        {name: data for name, data in files.items() if not (joins and name.startswith(JOINING))}
        for files in (before, world.files())
    )
    assert case.begun or found == left


# A group writes its own tables, and that it is attached.
JOINING = ("store/groups/", "store/queues/q/control/")

TABLE_AND_VERSION = re.compile(
    r"(the control table of queue 'q'|the control table of group 'g'|the acknowledgements of group 'g'|the replica table of queue 'q')"
    r" in (STORE|THERE), version \d+, "
)

PLAIN = [case for case in EVERY if not case.limit and not case.by_command]
COMMANDS = [case for case in EVERY if case.by_command]


def label(case: Case) -> str:
    return f"{case.given} {case.prepare_name}".strip()


@pytest.mark.parametrize("case", PLAIN, ids=label)
def test_python(case: Case, made: World, folder: Path, tmp_path: Path) -> None:
    world = prepared(case, made, tmp_path / "world")
    before = world.files()
    assert case.error is not None
    with pytest.raises(PartqError) as caught:
        evaluated(case.given, world.names)
    assert type(caught.value) is case.error
    assert names_places(caught.value.message, world).startswith(case.begins)
    assert_unchanged(before, world, case)


@pytest.mark.parametrize("case", COMMANDS, ids=label)
def test_command(case: Case, made: World, tmp_path: Path, run: Command) -> None:  # noqa: F811
    world = prepared(case, made, tmp_path / "world")
    before = world.files()
    given = case.given.replace("FOLDER", str(world.folder)).replace("THERE", world.there)
    told = run("--store", world.store, *shlex.split(given))
    assert told.out == "" and "Traceback" not in told.err
    if case.error is None:
        assert told.code == 2 and "Usage:" in told.err
        assert case.begins in told.err
    else:
        assert told.code == 1 and told.err.count("\n") == 1
        assert names_places(told.err, world).startswith(f"error: [{case.error.error_class}] {case.begins}")
    assert_unchanged(before, world, case)


@pytest.mark.parametrize("limit", LIMITS)
def test_with_a_limit(limit: str, made: World, folder: Path) -> None:
    """In processes of their own: a process that has given up its rights cannot take them back."""
    if limit == NOBODYS and os.geteuid() != 0:
        pytest.skip("only root may become somebody else")
    cases = [case for case in EVERY if case.limit == limit]
    worlds = [prepared(case, made, folder / f"{LIMITS.index(limit)}-{n}") for n, case in enumerate(cases)]
    before = [world.files() for world in worlds]
    found = limited(limit, [(case.given, world.folder) for case, world in zip(cases, worlds, strict=True)])
    for case, world, told, files in zip(cases, worlds, found, before, strict=True):
        assert case.error is not None
        assert names_places(told, world).startswith(f"{case.error.__name__}: {case.begins}"), case.given
        assert_unchanged(files, world, case)


def test_every_row_says_something_of_its_own() -> None:
    """Two rows that ask the same ask it of different states."""
    asked = [(case.given, case.before, case.by_command) for case in EVERY]
    assert len(asked) == len(set(asked)) and len(asked) >= 60
    for case in EVERY:
        assert len(case.begins) >= 15 and (case.prepare is None or case.before), case.given


# What is wrong in each stored row. All other damage is that of a whole file, which the error names.
FIELDS = {
    "an_unknown_fact": "kind",
    "a_fact_that_cannot_follow": "kind",
    "a_body_that_is_no_json": "body",
    "a_column_of_a_setting_that_is_not_there": "message_ttl_column",
    "an_unknown_key_hash": "key_hash",
    "a_setting_out_of_range": "retention_ms",
    "too_many_partitions": "partitions",
    "a_schema_that_is_too_deep": "schema",
    "an_edited_epoch": "epoch",
    "an_impossible_acknowledgement": "offset",
    "an_unknown_fact_of_the_group": "kind",
    "an_assignment_without_an_assignor": "assignor",
    "a_fact_of_the_group_without_a_kind": "kind",
    "a_replica_of_nowhere": "location",
}


def test_what_is_wrong_with_stored_rows_names_their_table_its_version_and_the_field() -> None:
    """Who restores a backup knows of which table, which of its versions was read, and what in it cannot be."""
    damaged = [case for case in SECTIONS["Facts and acknowledgements"] if case.error is CorruptTableError]
    assert len(damaged) >= 20 and FIELDS.keys() <= {case.prepare_name for case in damaged}
    for case in damaged:
        table = TABLE_AND_VERSION.search(case.begins)
        assert table, case.begins
        field = FIELDS.get(case.prepare_name)
        if field is None:
            assert case.begins.startswith("file FILE of "), case.begins
        else:
            assert re.search(rf"\b{field}\b", case.begins[table.end() :]), case.begins
