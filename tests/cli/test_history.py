"""Which facts `history` shows, and how they fit a terminal."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.outcome import Command
from tests.groups import Consumer, Lasting


def floors(member: Consumer, *offsets: int) -> None:
    """As `maintain` does again and again."""
    for offset in offsets:
        member.ack(0, offset)
        member.group.refresh()
        member.group.commit_floors(member.ids["q"], {0: offset})


def kinds(out: str) -> list[str]:
    return [line.split()[3] for line in out.splitlines()[1:]]


def numbers(out: str) -> list[int]:
    return [int(line.split()[0]) for line in out.splitlines()[1:]]


def test_floors_are_left_out_unless_somebody_asks(command: Command, store: str, living: Consumer) -> None:
    floors(living, 4, 5, 6)
    whole = [fact["kind"] for fact in json.loads(command("history", "g", "--json").out)]
    assert whole.count("Floor") == 3
    told = command("history", "g")
    assert kinds(told.out) == [kind for kind in whole if kind != "Floor"]
    assert told.err == "left out: 3 facts of kind Floor; --all shows them, too\n"
    for arguments, shown in (
        (["--all"], whole),
        (["--kind", "Floor"], ["Floor"] * 3),
        (["--kind", "Granted"], ["Granted"] * 4),
    ):
        told = command("history", "g", *arguments)
        assert (kinds(told.out), told.err) == (shown, "")
    told = command("history", "g", "--partition", "0")
    assert "Granted" in told.out and "Floor" not in told.out and "3 facts" in told.err


def test_the_last_are_the_last_of_those_that_are_shown(command: Command, store: str, living: Consumer) -> None:
    floors(living, 4, 5)
    whole = json.loads(command("history", "g", "--json", "--last", "4").out)
    assert [fact["kind"] for fact in whole] == ["Granted", "StatusChanged", "Floor", "Floor"]
    told = command("history", "g", "--last", "2")
    assert kinds(told.out) == ["Granted", "StatusChanged"] and told.err.startswith("left out: 2 facts ")
    assert numbers(told.out) == numbers(command("history", "g").out)[-2:] == [whole[0]["seq"], whole[1]["seq"]]
    told = command("history", "g", "--last", "99")
    assert told.out == command("history", "g").out and told.err.startswith("left out: 2 facts ")


def test_facts_fit_a_terminal(command: Command, store: str, living: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns a fact is two lines or more; at 300, and where no terminal is, it is one."""
    Lasting(store, "b-2-with-a-rather-long-name-of-its-own")
    living.end_holddown()
    piped = command("history", "g").out
    assert max(map(len, piped.splitlines())) > 80
    facts = json.loads(command("history", "g", "--json").out)
    assert len(piped.splitlines()) == len(facts) + 1
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    assert command("history", "g").out == piped
    monkeypatch.setenv("COLUMNS", "80")
    lines = command("history", "g").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [int(line.split()[0]) for line in lines if not line.startswith(" ")] == [fact["seq"] for fact in facts]
    told = " ".join(" ".join(lines).split())
    for fact in facts:
        assert fact["kind"] in told and fact["cause"] in told
    assert "→ b-2-with-a-rather-long-name-of-its-own/0" in told
