"""A group's history in parts: the same facts as in the whole of it, from no more files than they lie in."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.group.facts import Kind
from spark_partq.core.ids import instance_of
from spark_partq.storage.group import control
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect import fact_reader
from spark_partq.storage.inspect.fact_reader import FactFilter, FactReader
from spark_partq.storage.rows import Row
from spark_partq.storage.store import Store
from tests.groups import Lasting
from tests.storage.log.tables import Watched
from tests.versions import OLDER, needs, raise_group, running

MEMBERS = 12


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A group whose history lies in archives, merged files and single ones; tests only read it."""
    store = str(tmp_path_factory.mktemp("grown") / "store")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(control, "MERGE_AFTER", 3)
        monkeypatch.setattr(control, "ARCHIVE_AFTER", 3)
        for name in ("q", "other"):
            partq.create_queue(store, name, "v long", partitions=4, rebalance_delay_ms=0)
        first = Lasting(store, "first", queues=("q", "other"))
        for n in range(MEMBERS):
            member = Lasting(store, f"Member-{n}", queues=("q", "other"))
            first.release()
            member.leave()
    return store


@pytest.fixture(scope="module")
def facts(unchanged: str) -> list[Row]:
    return history(unchanged)


@pytest.fixture
def grown(unchanged: str, store: str) -> str:
    """A copy of it for a test that changes it or counts its requests."""
    return str(shutil.copytree(unchanged, store))


def history(store: str) -> list[Row]:
    group = Group(Store.at(store), "g")
    group.refresh()
    return group.history()


def read(store: str) -> FactReader:
    reader = FactReader(Store.at(store), "g")
    reader.refresh()
    return reader


def all_pages(reader: FactReader, wanted: FactFilter, most: int) -> list[Row]:
    found: list[Row] = []
    page = reader.page(wanted, most=most)
    found += page.facts
    while page.older is not None:
        page = reader.page(wanted, page.older, most)
        found += page.facts
    return found


def mentions(fact: Row, member: str) -> bool:
    flows = [instance_of(fact[name]) for name in ("flow", "to_flow") if fact[name]]
    return member in [fact["instance"], *flows]


FILTERS: list[tuple[FactFilter, Callable[[Row], Any]]] = [
    (FactFilter(), lambda fact: True),
    (FactFilter(kinds=("Granted", "MemberLeft")), lambda fact: fact["kind"] in ("Granted", "MemberLeft")),
    (FactFilter(queue="other"), lambda fact: fact["queue"] == "other"),
    (FactFilter(partition=0), lambda fact: fact["partition"] == 0),
    (FactFilter(queue="q", partition=3), lambda fact: (fact["queue"], fact["partition"]) == ("q", 3)),
    (FactFilter(member="Member-1"), lambda fact: mentions(fact, "Member-1")),
    (FactFilter(text="mEMBER-1 "), lambda fact: "Member-1 " in fact["cause"]),
    (FactFilter(text=".*"), lambda fact: False),
    (
        FactFilter(kinds=("Granted",), queue="q", member="first"),
        lambda fact: fact["kind"] == "Granted" and fact["queue"] == "q" and mentions(fact, "first"),
    ),
]


@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize(("wanted", "matches"), FILTERS)
def test_pages_have_what_the_history_has(
    unchanged: str, facts: list[Row], wanted: FactFilter, matches: Any, most: int
) -> None:
    expected = [fact for fact in reversed(facts) if matches(fact)]
    assert bool(expected) == (wanted.text != ".*")
    assert all_pages(read(unchanged), wanted, most) == expected


def test_the_history_lies_in_files_of_all_kinds(grown: str) -> None:
    group = Group(Store.at(grown), "g")
    group.refresh()
    kinds = {control.kind_of(path) for path in group._control._log.snapshot.files}
    assert kinds == {control.FACTS, control.HISTORY, control.ARCHIVE, control.SNAPSHOT}


def test_a_search_ends(grown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where so many facts were searched the page says from where on to ask again."""
    monkeypatch.setattr(fact_reader, "MOST_SEARCHED", 10)
    reader = read(grown)
    page = reader.page(FactFilter(kinds=("GroupCreated",)))
    assert (page.facts, page.older, page.end) == ([], reader.end - 10, reader.end)
    assert [fact["seq"] for fact in all_pages(reader, FactFilter(kinds=("GroupCreated",)), 5)] == [0]


def test_what_comes_is_read(grown: str) -> None:
    reader = read(grown)
    before = reader.end
    Lasting(grown, "late")
    assert reader.end == before
    reader.refresh()
    assert reader.page(FactFilter(kinds=("MemberJoined",)), most=1).facts[0]["instance"] == "late"
    assert all_pages(reader, FactFilter(), 50) == history(grown)[::-1]


def test_since(grown: str) -> None:
    facts, reader = history(grown), read(grown)
    at = facts[len(facts) // 2]["at"]
    assert reader.since(at, 10_000).to_pylist() == [fact for fact in facts if fact["at"] >= at]
    assert reader.since(at, 5).to_pylist() == facts[-5:]
    assert reader.since(at + dt.timedelta(days=1), 5).num_rows == 0


def test_what_explains_a_partition(grown: str) -> None:
    facts, reader = history(grown), read(grown)
    queue_id = next(fact["queue_id"] for fact in facts if fact["queue"] == "q")
    told = reader.about((queue_id, 2), (5, 7), reader.end)
    assert told == [
        fact for fact in facts
        if (fact["queue_id"], fact["partition"]) == (queue_id, 2) or fact["seq"] in (0, 5, 7) or fact["kind"] == Kind.MEMBER_JOINED
    ]  # fmt: skip
    assert reader.about((queue_id, 2), (), 3) == [fact for fact in told if fact["seq"] < 3]


def test_a_page_reads_the_files_that_it_lies_in(grown: str) -> None:
    """Also one in the middle of the history; and nothing is read twice."""
    files = Watched(Store(grown).files)
    reader = FactReader(Store.over(files, uri=grown), "g")
    reader.refresh()

    def data_files(before: int | None) -> int:
        files.calls.clear()
        page = reader.page(FactFilter(), before, 3)
        assert [fact["seq"] for fact in page.facts] == list(
            range((before or reader.end) - 1, (before or reader.end) - 4, -1)
        )
        return sum(operation == "read" and path.endswith(".parquet") for operation, path in files.calls)

    assert [data_files(20), data_files(20)] == [1, 0]
    assert data_files(None) <= 2


def test_memory_is_bounded(grown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_reader, "_MOST_BYTES", 1)
    reader = read(grown)
    assert all_pages(reader, FactFilter(), 20) == history(grown)[::-1]
    assert len(reader._kept) == 1


def test_refused(grown: str) -> None:
    """A group whose facts are missing, and one that is newer."""
    with running(OLDER):
        reader = read(grown)
        reader._files = [fact_reader._File(file.path, file.first + 1, file.end + 1) for file in reader._files]
        with pytest.raises(partq.CorruptTableError, match="facts are missing"):
            reader.page(FactFilter())
        raise_group(grown, needs(2, 2))
        with pytest.raises(partq.NewerStoreError):
            read(grown).page(FactFilter())
