"""Runs a how-to page as a reader would: its blocks one after the other, in one Python, in an empty folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.helpers import ROOT, driver, finished

# Each page under "How to" in the navigation of the site, and the tests that do what it says. What clusters.md says of Kubernetes is not
# run, as the page tells.
EXECUTED = {
    "producing.md": ("spark/test_producing_page.py::test_the_page",),
    "rebalance.md": (
        "spark/test_rebalance_page.py::test_a_query_with_a_listener",
        "cli/test_examples.py::test_rebalance",
    ),
    "assignors.md": ("core/assignors/test_document.py::test_examples",),
    "scaling.md": tuple(
        f"cli/test_examples.py::{test}" for test in ("test_scaling", "test_ingress", "test_what_is_stuck")
    ),
    "exactly-once.md": ("spark/test_exactly_once.py::test_examples",),
    "state.md": ("spark/test_howtos.py::test_state",),
    "dead-messages.md": ("spark/test_dead_letters.py::test_examples",),
    "rewind.md": ("spark/test_howtos.py::test_rewind",),
    "eager-to-cooperative.md": ("spark/test_howtos.py::test_eager_to_cooperative",),
    "clusters.md": ("spark/test_howtos.py::test_clusters", "spark/test_yarn.py::test_the_section"),
    "object-store.md": ("spark/test_howtos.py::test_object_store",),
    "spark-connect.md": ("spark/test_howtos.py::test_spark_connect",),
    "operations.md": (
        "cli/test_examples.py::test_operations",
        "spark/test_resets.py::test_the_example_of_the_document",
    ),
    "monitoring.md": ("cli/test_examples.py::test_monitoring",),
    "console.md": ("cli/test_examples.py::test_console", "console/test_browser.py::test_pictures"),
    "kafka.md": ("spark/test_kafka_broker.py::test_the_document",),
    "replicas.md": ("cli/test_examples.py::test_replicas",),
    "upgrading.md": (
        "storage/test_two_versions.py::test_side_by_side",
        "storage/test_two_versions.py::test_the_older_one_stops_when_the_format_is_raised",
    ),
    "SECURITY.md": ("security/test_rights.py::test_on_a_disk",),
}

_BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = "import sys; from spark_partq.cli import main; main()"

# What stands before the first block: the folder, a shell, and messages of five customers, whose order is known.
_BEFORE = f"""
import json, os, shlex, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
os.chdir(sys.argv[1])
os.environ["PYTHONPATH"] = os.pathsep.join([{str(ROOT)!r}, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
from tests.helpers import eventually
import spark_partq as partq

def shell(lines):
    for line in lines.splitlines():
        name, *words = shlex.split(line)
        assert name == "spark-partq", line
        sys.stdout.flush()
        subprocess.run([sys.executable, "-c", {_COMMAND!r}, *words], check=True)

STORE, sent = "store", []
def send(count):
    rows = [(f"o{{n}}", f"c{{n % 5}}", float((n * 7) % 23 - 11)) for n in range(len(sent), len(sent) + count)]
    session = partq.session("tests")
    rows_of = session.createDataFrame(rows, "order_id string, customer string, amount double").coalesce(1)
    partq.append(rows_of, STORE, "orders")
    sent.extend(rows)

def make(partitions):
    columns = "order_id string, customer string, amount double"
    partq.create_queue(STORE, "orders", columns, key="customer", partitions=partitions, rebalance_delay_ms=0)

def table(path):
    return partq.session("tests").read.format("delta").load(path)

def settled(group, members):
    def there():
        found = partq.describe_group(STORE, group) if group in partq.list_groups(STORE) else None
        return found and (found.status, len(found.members), found.unassigned, found.lag) == ("Ready", members, 0, 0)
    eventually(there, f"{{members}} members that have read everything", 60)
"""


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of the blocks that are run, and of those that show what was printed."""
    return [(language, text) for language, text in _BLOCK.findall((ROOT / "docs" / page).read_text())]


def section(page: str, title: str) -> list[str]:
    """The blocks of a shell under a heading."""
    text = (ROOT / "docs" / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [block for language, block in _BLOCK.findall(text) if language == "sh"]


def run(page: str, folder: Path, between: Mapping[int, str], **environment: str) -> str:
    """Run the blocks of a page of docs/; `between` has what the test does before the block of a number, -1 is the end.

    Returns what was printed. What the page shows as output was in it, in order.
    """
    program = [_BEFORE]
    done = [block for block in blocks(page) if block[0] != "text"]
    for number, (language, text) in enumerate(done):
        program.append(between.get(number, ""))
        program.append(text if language == "python" else f"shell({text!r})")
    program.append(between.get(-1, ""))
    assert max(between) < len(done)
    path = folder / "page.py"
    path.write_text("\n".join(program))
    start = "import runpy, sys; runpy.run_path(sys.argv[2], run_name='__main__')"
    env = {"COLUMNS": "120", "PYSPARK_PYTHON": sys.executable, **environment}
    printed = finished(driver(f"import os, sys; os.chdir(sys.argv[1]); {start}", str(folder), str(path), env=env))
    at = 0
    for text in [text for language, text in blocks(page) if language == "text"]:
        found = printed.find(text, at)
        assert found >= 0, f"{page} shows\n{text}\nand there was\n{printed[at:]}"
        at = found + len(text)
    return printed
