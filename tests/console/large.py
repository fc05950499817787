"""A queue of 1,024 partitions, and a group with a history of 100,000 facts.

``python -m tests.console.large`` times the first picture of it: from the start of the command to what a browser shows.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

from playwright.sync_api import Browser

import spark_partq as partq
from spark_partq.core.group.facts import GroupFact
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.store import Store
from tests.cli.queues import PROGRAM
from tests.console import pictures
from tests.groups import Lasting
from tests.helpers import ROOT

PARTITIONS, FACTS = 1024, 100_000
MOST_S = 2.0  # until there is something to see
OVERVIEW, GROUP = ("#/", "main table"), ("#/group/g", "#timeline svg .line")  # page, and what of it is waited for
_RUNS = 5


def make(store: str) -> None:
    """Queue `q`; group `g`, whose floors were raised again and again, with two members."""
    partq.create_queue(store, "q", "v long", partitions=PARTITIONS, rebalance_delay_ms=0)
    member = Lasting(store, "a", 8)
    queue_id = member.partition_id(0)[0]
    table = ControlTable(Store.at(store), "g")
    table.refresh()
    epochs = {number: own.epoch for (_, number), own in table.state.partitions.items()}
    floors = [
        GroupFact(
            "Floor", "q", queue_id, number, 0, epoch_before=epoch, epoch=epoch, cause="maintenance", by="somebody"
        )
        for number, epoch in sorted(epochs.items())
    ]
    while table.state.seq < FACTS:
        table.commit(floors)
    member.beat()
    Lasting(store, "b", 8).beat()


def first_picture_s(browser: Browser, store: str, fragment: str, awaited: str) -> float:
    """Seconds from the start of a console, in a process of its own, until the browser shows the element."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    command = [*PROGRAM, "--store", store, "console", "--port", "0"]
    began_s = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        page.goto(process.stdout.readline().split()[-1] + fragment)
        page.locator(awaited).first.wait_for(state="visible")
        return time.monotonic() - began_s
    finally:
        page.close()
        process.kill()
        process.wait()


def main() -> int:
    """Exit code 1 if the median of a first picture takes longer than it may."""
    medians = []
    with tempfile.TemporaryDirectory() as folder, pictures.browser() as chromium:
        store = f"{folder}/store"
        make(store)
        for fragment, awaited in (OVERVIEW, GROUP):
            took_s = [first_picture_s(chromium, store, fragment, awaited) for _ in range(_RUNS)]
            medians.append(statistics.median(took_s))
            print(f"{fragment}: {medians[-1]:.2f} s ({min(took_s):.2f} to {max(took_s):.2f})", flush=True)
    return int(max(medians) > MOST_S)


if __name__ == "__main__":
    sys.exit(main())
