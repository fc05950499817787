"""A queue of 1,024 partitions and a history of 100,000 facts: answers and reads stay small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_partq.console.looks import Looks
from spark_partq.storage.inspect import fact_reader
from spark_partq.storage.store import Store
from tests.console.large import FACTS, PARTITIONS
from tests.console.served import Served, console, patient
from tests.helpers import driver, finished
from tests.storage.log.tables import Watched

MOST_BYTES, MOST_SENT = 400_000, 40_000  # of one answer, and of that what goes over the wire


@pytest.fixture(scope="module")
def served(large: str) -> Iterator[Served]:
    with console(large, every_s=3600.0) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/api/store", {}),
        ("/api/groups/g", {}),
        ("/api/queues/q", {}),
        ("/api/groups/g/history", {"limit": 200}),
        ("/api/groups/g/history", {"text": "a joined"}),
        ("/api/groups/g/history", {"member": "b", "limit": 200}),
        ("/api/groups/g/timeline", {"seconds": 86_400}),
        ("/api/groups/g/explain", {"partition": f"q/{PARTITIONS - 1}"}),
    ],
)
def test_answers_are_small(served: Served, path: str, asked: dict[str, Any]) -> None:
    answer = served.get(path, {"accept-encoding": "gzip"}, **asked)
    assert answer.status == 200 and len(answer.body) < MOST_BYTES and answer.sent < MOST_SENT


def test_the_first_fact_is_found(served: Served) -> None:
    page = served.found("/api/groups/g/history", kind="GroupCreated")
    if page["older"] is not None:  # so many facts are searched at a time
        page = served.found("/api/groups/g/history", kind="GroupCreated", before=page["older"])
    assert [fact["seq"] for fact in page["facts"]] == [0] and page["end"] > FACTS


def test_a_picture_has_so_many_rows(served: Served) -> None:
    found = served.found("/api/groups/g/timeline", seconds=86_400)
    assert (found["partitions"], len(found["rows"]), found["whole"]) == (PARTITIONS, 32, False)
    last = served.found("/api/groups/g/timeline", seconds=86_400, first=PARTITIONS - 1)["rows"]
    assert [row["partition"] for row in last] == [PARTITIONS - 1]


def test_reads_do_not_grow_with_the_history(large: str) -> None:
    """What a look costs stands in `storage.inspect.watch`; the newest page reads the few files that it lies in, and one of long ago one."""
    files = Watched(Store(large).files, is_local=False)
    looks = Looks(Store.over(files, uri=large), 0.0)
    with patient():
        looks.refresh()
        files.calls.clear()
        looks.refresh()
    assert len(files.calls) == 3 + (1 + PARTITIONS) + 2
    reader = looks.facts("g")
    for before in (None, 50_000, 2_000):
        files.calls.clear()
        assert len(reader.page(fact_reader.FactFilter(), before, 100).facts) == 100
        assert sum(operation == "read" for operation, _ in files.calls) <= 2
    everything = fact_reader.FactFilter(text="nothing is like that")
    reader.page(everything)
    assert sum(table.nbytes for table in reader._kept.values()) <= fact_reader._MOST_BYTES


def test_a_browser_more_reads_nothing_more(large: str) -> None:
    files = Watched(Store(large).files)
    with console(Store.over(files, uri=large), every_s=3600.0) as served:
        assert served.found("/api/store")["look"] == 1
        files.calls.clear()
        for _ in range(3):
            served.found("/api/store")
        assert files.calls == []


def test_a_first_picture_waits_for_no_large_package(large: str) -> None:
    """They are loaded when somebody asks for a history or a timeline."""
    program = """
import sys, spark_partq.cli.console, spark_partq.console.server
from spark_partq.console.answers import store_answer
from spark_partq.console.looks import Looks
from spark_partq.storage.store import Store
looks = Looks(Store.at(sys.argv[1]), 0.0)
looks.refresh()
assert [group["name"] for group in store_answer(looks)["groups"]] == ["g"]
print(*sys.modules)
"""
    loaded = finished(driver(program, large)).split()
    assert "pyarrow" in loaded and not {"pandas", "pyarrow.compute"} & set(loaded)
