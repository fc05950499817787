"""The doctor, and who lists, in a store of which this process may not look at everything: that is said, and what is beside it is looked at."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import spark_partq as partq
from spark_partq.storage.upkeep import UPKEEP
from tests.groups import Consumer
from tests.helpers import put
from tests.refused.world import NOBODYS, World, folder_for_all, limited
from tests.scaled import Sink, make, messages

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")

AGAIN = "; look again when it can be read; nothing says that it is damaged"
# Of queue b and of group gb, whatever else cannot be looked at.
DAMAGE_OF_B = ("partition 0 of queue b: ", "group gb: ")
BATCH = "queues/q/manifests/*/s~*.json"
CLOSED = (
    "queues", "queues/q", "queues/q/control", "queues/q/manifests", BATCH, "queues/q/partitions/partition=0",
    "groups", "groups/gq", "groups/gq/acks", "groups/gq/control",
)  # fmt: skip


class Seen(NamedTuple):
    """What a user without rights sees."""

    findings: list[str]
    checked: str
    queues: str
    groups: str
    command: str


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with folder_for_all() as path:
        yield path


@pytest.fixture(scope="module")
def made(folder: Path) -> World:
    """Queues b and q, read by groups gb and gq. Of b and of gb a file is missing; a sink has written a batch to q."""
    world = World(folder / "made")
    make(world.store, 2)
    Sink(world.store).write(0, messages(0, 20))
    partq.create_queue(world.store, "b", "v long", partitions=2)
    put(world.store, 0, range(10), queue="b")
    for name in ("b", "q"):
        Consumer(world.store, "x", group=f"g{name}", queues=(name,)).ack(0, 3, queue=name)
    UPKEEP.wait()
    next(world.path("queues/b/partitions/partition=0").glob("*.parquet")).unlink()
    next(world.path("groups/gb/control").glob("*.parquet")).unlink()
    return world


@pytest.fixture(scope="module")
def seen(made: World, folder: Path) -> dict[str, Seen]:
    """By the path that is closed; in one process, which gives up its rights for good."""
    asked = ("findings(store)", "list_queues(store)", "list_groups(store)", "listed(store)")
    worlds = [made.copied(folder / str(number)) for number in range(len(CLOSED))]
    for closed, world in zip(CLOSED, worlds, strict=True):
        (path,) = world.path("").glob(closed)
        path.chmod(0)
    told = limited(NOBODYS, [(given, world.folder) for world in worlds for given in asked])
    found = {}
    for number, (closed, world) in enumerate(zip(CLOSED, worlds, strict=True)):
        doctor, *others = (text.replace(world.store, "STORE") for text in told[number * 4 : number * 4 + 4])
        *findings, checked = ast.literal_eval(doctor) if doctor.startswith("[") else (doctor, "nothing")
        found[closed] = Seen(findings, checked, *others)
    return found


def besides(seen: Seen) -> list[str]:
    """The findings without those of b and gb."""
    return [finding for finding in seen.findings if not any(damage in finding for damage in DAMAGE_OF_B)]


@pytest.mark.parametrize(
    ("closed", "about", "checked"),
    [
        ("queues/q", "queue q", "1 queues, 2 partitions, 2 groups"),
        ("queues/q/control", "queue q", "2 queues, 2 partitions, 2 groups"),
        ("queues/q/manifests", "queue q", "2 queues, 4 partitions, 2 groups"),
        (BATCH, "queue q", "2 queues, 4 partitions, 2 groups"),
        ("queues/q/partitions/partition=0", "partition 0 of queue q", "2 queues, 4 partitions, 2 groups"),
        ("groups/gq", "group gq", "2 queues, 4 partitions, 1 groups"),
        ("groups/gq/acks", "group gq", "2 queues, 4 partitions, 2 groups"),
        ("groups/gq/control", "group gq", "2 queues, 4 partitions, 2 groups"),
    ],
)  # fmt: skip
def test_what_is_beside_it_is_checked(seen: dict[str, Seen], closed: str, about: str, checked: str) -> None:
    found = seen[closed]
    of_it = [finding for finding in besides(found) if finding.startswith(f"fault: {about}: could not be looked at: ")]
    assert len(of_it) == 1, found.findings
    assert "cannot be read: Permission denied" in of_it[0] and of_it[0].endswith(AGAIN)
    for damage in DAMAGE_OF_B:
        assert sum(f"fault: {damage}" in finding for finding in found.findings) == 1, found.findings
    assert found.checked == checked
    assert not any("delete" in finding for finding in besides(found))
    rest = [finding for finding in besides(found) if finding not in of_it]
    assert all("group gq: its positions cannot be compared with " in finding for finding in rest), rest


def test_no_queue_can_be_listed(seen: dict[str, Seen]) -> None:
    """The groups are checked. What they say of queues cannot be."""
    found = seen["queues"]
    assert found.findings[0].startswith("fault: folder queues: could not be looked at: ")
    assert found.checked == "0 queues, 0 partitions, 2 groups"
    assert any("fault: group gb: " in finding and ".parquet is missing" in finding for finding in found.findings)


def test_no_group_can_be_listed(seen: dict[str, Seen]) -> None:
    found = seen["groups"]
    assert found.checked == "2 queues, 4 partitions, 0 groups"
    told = [finding for finding in besides(found) if "could not be looked at" in finding]
    assert len(told) == 1 and told[0].startswith("fault: folder groups: ") and told[0].endswith(AGAIN)
    assert any(finding.startswith("fault: partition 0 of queue b: ") for finding in found.findings)


@pytest.mark.parametrize("closed", CLOSED[1:6] + CLOSED[7:])
def test_each_is_listed(seen: dict[str, Seen], closed: str) -> None:
    """Also one that cannot be looked at: it may be there, and the command says why nothing more is told of it."""
    found = seen[closed]
    assert (found.queues, found.groups) == ("['b', 'q']", "['gb', 'gq']")
    code, text = ast.literal_eval(found.command)
    told = json.loads(text)
    assert code == 0 and [row["name"] for row in told["queues"]] == ["b", "q"] and told["groups"] == ["gb", "gq"]


def test_the_error_stands_beside_the_name(seen: dict[str, Seen]) -> None:
    listed = json.loads(ast.literal_eval(seen["queues/q"].command)[1])["queues"]
    # Of group gb, which reads queue b, nobody knows what it still wants.
    assert {row["name"]: row["status"] for row in listed} == {"b": "CORRUPT_TABLE", "q": "NOT_PERMITTED"}
    states = json.loads(ast.literal_eval(seen["groups/gq"].command)[1])["group_states"]
    assert states == {"gq": "NOT_PERMITTED", "gb": "CORRUPT_TABLE"}


def test_who_cannot_list_the_names_is_told_so(seen: dict[str, Seen]) -> None:
    for closed, told in (("queues", seen["queues"].queues), ("groups", seen["groups"].groups)):
        assert told.startswith(f"NotPermittedError: STORE/{closed} cannot be read: Permission denied")
