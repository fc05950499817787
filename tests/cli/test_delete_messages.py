"""The command that deletes the messages of a key."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

import spark_partq as partq
from tests.cli.outcome import Command, Terminal, assert_refused
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
    assert (done.code, done.out) == (0, "queue orders has no message of customer=ada: nothing was deleted\n")


def test_it_asks_first(command: Command, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store)
    fill(store, "abab", "a")
    monkeypatch.setattr(sys, "stdin", Terminal("n\ny\n"))
    refused = command("delete-messages", "q", "--key", "k=a")
    assert refused.code == 1 and "not confirmed (--yes does not ask)" in refused.err
    assert len(rows_at(store)) == 5
    assert command("delete-messages", "q", "--key", "k=a").out.lstrip() == (
        "deleted 3 messages of queue q\n"
        "maintain deletes their files after vacuum_grace_ms (86,400,000 ms): spark-partq maintain q\n"
    )
    assert [row["k"] for row in rows_at(store).values()] == ["b", "b"]


def test_a_wrong_key_is_refused_unasked(command: Command, store: str) -> None:
    make(store)
    assert_refused(command("delete-messages", "q", "--key", "v=1"), "INVALID_ARGUMENT", "'v'", "k")
    assert_refused(command("delete-messages", "other", "--key", "k=1"), "QUEUE_NOT_FOUND", "'other'")
