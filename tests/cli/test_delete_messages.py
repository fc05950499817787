"""The command that deletes the messages of a key."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import spark_partq as partq
from tests.cli.outcome import Command, assert_refused
from tests.core.test_documents import section
from tests.helpers import ROOT
from tests.storage.procedures.test_added_columns import make
from tests.storage.procedures.test_delete_messages import fill, rows_at


def test_the_line_of_the_document(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    partq.create_queue("store", "orders", "customer string, v bigint", key="customer", partitions=2)
    part = section((ROOT / "docs" / "operations.md").read_text(), "Deleting a person's messages")
    (line,) = re.findall(r"^    spark-partq (.*)", part, re.MULTILINE)
    done = run(*shlex.split(line), "--yes")
    assert (done.code, done.out) == (
        0, "deleted 0 messages of queue orders; maintain deletes their files after vacuum_grace_ms\n"
    )  # fmt: skip


def test_it_asks_first(command: Command, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store)
    fill(store, "abab", "a")
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert_refused(command("delete-messages", "q", "--key", "k=a"), "INVALID_ARGUMENT", "not confirmed", "--yes")
    assert len(rows_at(store)) == 5
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    assert command("delete-messages", "q", "--key", "k=a").out.startswith("deleted 3 messages of queue q;")
    assert [row["k"] for row in rows_at(store).values()] == ["b", "b"]


def test_a_wrong_key_is_refused_unasked(command: Command, store: str) -> None:
    make(store)
    assert_refused(command("delete-messages", "q", "--key", "v=1"), "INVALID_ARGUMENT", "'v'", "k")
    assert_refused(command("delete-messages", "other", "--key", "k=1"), "QUEUE_NOT_FOUND", "'other'")
