"""What the commands print for people fits a terminal of 80 columns, however long names are, and cuts none of them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer
from rich.cells import cell_len

import spark_partq as partq
from tests.cli.outcome import Command
from tests.cli.queues import fill
from tests.groups import Consumer
from tools import commands

NAMES = {
    "ORDERS": "orders_of_all_countries_and_of_all_of_their_shops_since_two_thousand_one",
    "SOLO": "payments_of_all_countries_in_the_order_in_which_they_came_from_the_banks",
    "NEW": "refunds_of_all_countries_and_of_all_of_their_shops_since_two_thousand_two",
    "DEAD": "unprocessed_orders_of_all_countries_and_of_all_of_their_shops_since_2001",
    "BILLING": "billing_of_all_countries_and_of_all_of_their_shops_in_the_northern_house",
    "AUDIT": "audit_of_all_countries_and_of_all_of_their_shops_in_the_southern_house",
    "MEMBER": "application-of-the-northern-house-on-the-second-cluster-of-two-clusters",
}
# They serve or play until they are stopped; or a fact, a decision, a message of them is a line, so that others can search it.
WITHOUT = {"console", "metrics", "demo", "history", "rebalance", "tail"}

LINES = """
create-queue NEW --schema 'k string, v long' --key k --partitions 2
create-queue NEW --schema 'k string, v long' --key k --partitions 2 --exist-ok
alter-queue NEW --set retention_ms=7d --set dead_letter_queue=DEAD
alter-queue NEW --set retention_ms=7d
alter-queue NEW --add-column 'a_column_that_comes_later long'
list
describe-queue ORDERS
describe-group BILLING
explain ORDERS 0
check BILLING --within 0
scale ORDERS 3
FILL
list
describe-group BILLING
describe-queue ORDERS
scale ORDERS 3
scale ORDERS 1 --mode drain --timeout 0
scale ORDERS 3
reset-offsets BILLING --to earliest --dry-run
reset-offsets BILLING --to earliest --yes
check BILLING --within 0
ingress disable ORDERS
ingress enable ORDERS
scale SOLO 2
copy-stuck SOLO
scale SOLO 1
dead-letter list NEW
dead-letter redrive NEW
delete-messages ORDERS --key k=nobody --yes
delete-messages ORDERS --key k=k --yes
maintain
doctor
replicate ORDERS --to there
list
--store there list
--store there describe-queue ORDERS
--store there promote ORDERS
list
describe-queue ORDERS
DAMAGE
list
doctor
delete-queue ORDERS --yes
delete-queue NEW --yes
describe-group BILLING
delete-group BILLING --yes
describe-group BILLING
"""

# Of what was too wide or is told only now and then: that it was told here.
SEEN = (
    "need no restart",
    "waits for 0 up to",
    "waiting: partitions whose",
    "waiting up to 0.3 s for the session of",
    "gets nothing twice",
    "none was acknowledged within 0 s",
    "and no query is in the group",
    "they go once every group has read them, or",
    "faults, 0 warnings",
    "fault: group",
    "role replica of",
    "role taken over by",
    "warning: [CORRUPT_TABLE]",
    "its dead messages stay",
)


def test_everything_fits(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences, tables and what stands in their place; hints and warnings, and what is waited for. An error is one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    orders, solo = NAMES["ORDERS"], NAMES["SOLO"]
    quick = {"rebalance_delay_ms": 0, "max_handoff_time_ms": 0}
    partq.create_queue("store", orders, "k string, v bigint", key="k", partitions=2, **quick)
    partq.create_queue("store", solo, "k string, v bigint", partitions=0)
    fill("store", 0, 7, orders)
    fill("store", -1, 7, solo)
    for group in ("BILLING", "AUDIT"):
        Consumer("store", NAMES["MEMBER"], group=NAMES[group], queues=(orders,), session_timeout_ms=300).ack(
            0, 3, queue=orders
        )
    left = {name for name, _ in commands.commands(typer.Context(commands.COMMAND))} - WITHOUT
    seen, stores = "", (str(tmp_path / "store"), str(tmp_path / "there"))
    for line in LINES.strip().splitlines():
        if line == "FILL":
            fill("store", 2, 5, orders)
            continue
        if line == "DAMAGE":
            for file in Path("store/groups", NAMES["AUDIT"], "control").glob("*.parquet"):
                file.unlink()
            continue
        words = [NAMES.get(word, word) for word in shlex.split(line)]
        told = run(*words) if "--store" in words else run("--store", "store", *words)
        prose = [one for one in (told.out + told.err).splitlines() if not one.startswith("error: ")]
        assert prose, (line, told)
        for one in prose:  # a path is not cut: one that is too long has a line for itself
            assert cell_len(one) <= 80 or one.strip(" ,:") in stores, (line, one)
        for name in NAMES.values():
            assert told.out.count(name[:12]) == told.out.count(name), (line, name)
        left -= {name for name in left if line.removeprefix("--store there ").startswith(name)}
        seen += told.out + told.err
    assert not left
    seen = " ".join(seen.split())
    for words in SEEN:
        assert words in seen, words
