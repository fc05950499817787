"""Tables of small rows, and the compare-and-set that everything else rests on."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.storage.arrow import arrow_type
from spark_partq.storage.group import ack_table, control
from spark_partq.storage.log import Conflict, retrying
from spark_partq.storage.log.folder import CLEAN_UP_EVERY
from spark_partq.storage.rows import RowTable, decode_table
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from spark_partq.storage.upkeep import UPKEEP
from tests.groups import Lasting
from tests.helpers import in_parallel
from tests.storage.bombs import one_text, packed, refused_for_little

COLUMNS = (("n", "long"),)


def table(store: str) -> RowTable:
    return RowTable(Store.at(store), "t", "the table", COLUMNS, 1_000)


def values(rows: RowTable) -> list[int]:
    return [row["n"] for row in rows.rows()]


def test_second_of_two_stale_writers_fails(store: str) -> None:
    """Q5: a decision that rests on an old state is never committed."""
    one, two = table(store), table(store)
    one.create([{"n": 0}])
    one.refresh(), two.refresh()
    one.append([{"n": 1}])
    with pytest.raises(Conflict):
        two.append([{"n": 2}])


def test_look_after_a_lost_race_shows_what_the_winner_wrote(store: str) -> None:
    """Q5: the loser decides again on the winner's rows, not on what it knew before."""
    one, two = table(store), table(store)
    one.create([{"n": 0}])
    one.refresh(), two.refresh()
    one.append([{"n": 1}])
    with pytest.raises(Conflict):
        two.append([{"n": 2}])
    assert two.refresh()
    assert values(two) == [0, 1]
    two.append([{"n": 2}])
    assert values(two) == [0, 1, 2]  # without another refresh
    assert not two.refresh() and values(two) == [0, 1, 2]


def test_only_one_creates(store: str) -> None:
    """Q1: of several creators one wins, and its rows are those that stay."""
    for n in range(5):
        tables = [RowTable(Store.at(store), f"t{n}", "the table", COLUMNS, 1_000) for _ in range(8)]
        results = in_parallel([lambda t=t, i=i: t.create([{"n": i}]) for i, t in enumerate(tables)])
        winners = [i for i, r in enumerate(results) if r is None]
        assert len(winners) == 1 and all(isinstance(r, Conflict) for r in results if r is not None)
        tables[0].refresh()
        assert values(tables[0]) == winners


@pytest.mark.parametrize("at", [2**63 - 1, -(2**63), 253_402_300_799_999_999, -62_135_596_800_000_000])
def test_times_that_python_does_not_have(store: str, at: int) -> None:
    """A file that says so is damaged; a time at the very ends would be an error as soon as somebody shows it in his zone."""
    rows = RowTable(Store.at(store), "t", "the table", (("n", "long"), ("at", "timestamp")), 10)
    rows.create([{"n": 0, "at": dt.datetime(2026, 11, 1, tzinfo=dt.UTC)}])
    (path,) = (Path(store) / "t").glob("*.parquet")
    whole = pq.read_table(path)
    times = pa.array([at], pa.int64()).cast(whole.schema.field("at").type)
    pq.write_table(whole.set_column(1, whole.schema.field("at"), times), path)
    for read in (rows._disk.read, rows._disk.read_table):
        with pytest.raises(partq.CorruptTableError, match="it has a time before the year 1 or after the year 9999"):
            read(path.name, 0)


def test_counting_by_many_writers(store: str) -> None:
    """Q5: read, add one, write; whoever loses a race counts again, so no number is missing or twice."""
    table(store).create([{"n": 0}])

    def count(times: int) -> None:
        mine = table(store)

        def attempt() -> None:
            mine.refresh()
            mine.append([{"n": values(mine)[-1] + 1}])

        for _ in range(times):
            retrying(SYSTEM, attempt, "counting")

    assert in_parallel([lambda: count(12)] * 6) == [None] * 6
    last = table(store)
    last.refresh()
    assert values(last) == list(range(73))


def test_old_handle_after_log_cleanup(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle whose next log files were cleaned up still finds the newest version and does not write over history."""
    old, writer = table(store), table(store)
    old.create([{"n": 0}])
    old.refresh()
    writer.refresh()
    for n in range(1, 8):
        writer.append([{"n": n}])
    path = Path(store) / "t"
    DeltaTable(path).create_checkpoint()
    for log in (path / "_delta_log").glob("*.json"):
        if int(log.name[:20]) < 7:
            log.unlink()
    with pytest.raises(Conflict):  # its place is empty, but not the end of the log
        old.append([{"n": 8}])
    assert old.refresh()
    assert values(old) == list(range(8))
    old.append([{"n": 8}])
    fresh = table(store)
    fresh.refresh()
    assert values(fresh) == list(range(9))


def test_old_log_files_go(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R7: a table's age costs nothing: what a checkpoint stands for goes when it has outlived its retention."""
    mine = table(store)
    mine.create([{"n": 0}])
    log = Path(store) / "t" / "_delta_log"
    counts = []
    for n in range(1, CLEAN_UP_EVERY + 51):
        for file in log.iterdir():
            os.utime(file, (n, n))
        mine.append([{"n": n}], replace=True)
        UPKEEP.wait()
        counts.append(len(list(log.glob("*.json"))))
    assert max(counts) <= CLEAN_UP_EVERY + 30 and counts[-1] <= 80
    late = table(store)
    late.refresh()
    assert values(late) == [len(counts)]


def test_names_of_files_are_those_of_the_log(store: str) -> None:
    """What a refresh finds is named as it was committed."""
    mine = RowTable(Store.at(store), "t", "the table", COLUMNS, 1_000)
    mine.create([{"n": 0}])
    mine.append([{"n": 1}])
    named = DeltaTable(Path(store) / "t").get_add_actions().column("path").to_pylist()
    assert mine.files == sorted(named) and len(named) == 2


def test_no_log(store: str) -> None:
    """A table that is gone is an error that names its place."""
    with pytest.raises(partq.CorruptTableError, match="the table has no Delta log"):
        table(store).refresh()


@pytest.mark.parametrize("content", ["{", '{"protocol": 5}\n', "\x00\xff", '{"add": {}}\n'])
def test_damaged_log(store: str, content: str) -> None:
    """A damaged log file is an error that names the table, and the way out."""
    mine = table(store)
    mine.create([{"n": 0}])
    mine.refresh()
    (Path(store) / "t" / "_delta_log" / f"{1:020d}.json").write_text(content)
    for rows in (mine, table(store)):
        with pytest.raises(partq.CorruptTableError, match=r"cannot be read|_delta_log"):
            rows.refresh()


@pytest.mark.parametrize("damage", ["missing", "cut", "foreign", "huge"])
def test_damaged_data_file(store: str, damage: str) -> None:
    """A data file that cannot be read is named."""
    table(store).create([{"n": 0}])
    (file,) = (Path(store) / "t").glob("*.parquet")
    if damage == "missing":
        file.unlink()
    elif damage == "huge":
        os.truncate(file, 1 << 40)  # holes, which take no space
    else:
        file.write_bytes(file.read_bytes()[:-20] if damage == "cut" else b"hello")
    with pytest.raises(partq.CorruptTableError) as caught:
        table(store).refresh()
    assert file.name in str(caught.value)


@pytest.mark.parametrize(
    "name", ["a b", "a%b", "a#b", "a?b", "ä東", "a+b", "a=b", "a:b", "a'b", 'a"b', "a&b", "a*b[c]"]
)
def test_store_paths(tmp_path: Path, name: str) -> None:
    """Whatever the folder above a store is called, its tables are there and nowhere else."""
    path = tmp_path / name / "store"
    partq.create_queue(path, "q", "a int", partitions=2)
    assert partq.describe_queue(str(path), "q").status == "Ready"
    assert partq.describe_queue(path.as_uri(), "q").operating_partitions == 2
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert sorted(p.name for p in path.parent.iterdir()) == ["store"]
    assert (path / "queues" / "q" / "control" / "_delta_log").is_dir()


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    partq.create_queue("here", "q", "a int", partitions=1)
    assert (tmp_path / "here" / "queues" / "q").is_dir()
    assert partq.list_queues(tmp_path / "here") == partq.list_queues("./here/") == ["q"]


def test_store_is_pickled_without_its_file_system(store: str) -> None:
    """Q7: what goes to the executors holds nothing open."""
    opened = Store.at(store, {"region": "x"})
    assert opened.names("queues") == []
    copy = pickle.loads(pickle.dumps(opened))
    assert copy == opened and copy.storage_options == {"region": "x"} and "files" not in copy.__dict__
    assert "region" not in repr(opened)


def test_path_that_delta_would_misread(tmp_path: Path) -> None:
    """delta-rs takes ``%20`` in a local path for a space: half of the store would lie in another folder."""
    with pytest.raises(partq.InvalidArgumentError, match="percent"):
        partq.create_queue(tmp_path / "a%20b", "q", "a int")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/tmp/\0x", "x\0", "file:///tmp/%00x", "s3://bucket/\0x"])
def test_path_that_none_has(path: str) -> None:
    for use in (partq.Store, partq.list_queues, lambda path: partq.create_queue(path, "q", "a int")):
        with pytest.raises(partq.InvalidArgumentError, match="NUL"):
            use(path)


def test_empty_path() -> None:
    with pytest.raises(partq.InvalidArgumentError, match="empty"):
        partq.list_queues("")


# ---- files of few bytes that would take much memory
ACKS = pa.schema([pa.field(name, arrow_type(type_)) for name, type_ in ack_table.COLUMNS])
FACTS = pa.schema([pa.field(name, arrow_type(type_)) for name, type_ in control.COLUMNS])

FIXED = pa.dictionary(pa.int32(), pa.binary(500_000))


def columns(schema: pa.Schema, n: int, **given: pa.Array) -> pa.Table:
    """So many rows, null where nothing is given."""
    return pa.table({f.name: given.get(f.name, pa.nulls(n, f.type)) for f in schema})


def equal_rows(schema: pa.Schema, n: int) -> pa.Table:
    row = {"incarnation": "i", "queue_id": "q", "partition": 0, "kind": "Floor", "seq": 1}
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names}], schema).take(pa.array([0] * n))


def shared_texts(schema: pa.Schema, n: int) -> pa.Table:
    """One text of a megabyte in all rows."""
    text = one_text("x" * 1_000_000, n)
    return columns(schema, n, **{"body" if "body" in schema.names else "incarnation": text})


READ = """
from pathlib import Path
from spark_partq.storage.group import ack_table, control
from spark_partq.storage.rows import RowFiles
from spark_partq.storage.store import Store
most = {"ack_table": ack_table, "control": control}[sys.argv[2]]
limit = most.MOST_ROWS if most is ack_table else most.MOST_FACTS
files = RowFiles(Store.at(sys.argv[1]), "t", "the table", most.COLUMNS, limit)
files.read("small.parquet", 0)
"""


@pytest.mark.parametrize("read", ["read", "read_table"])
@pytest.mark.parametrize(
    ("table", "made", "said"),
    [
        ("ack_table", lambda: equal_rows(ACKS, 500_000), "it declares 500,000 rows"),
        ("ack_table", lambda: shared_texts(ACKS, 3_000), "it holds more than"),
        ("control", lambda: equal_rows(FACTS, 600_000), "it declares 600,000 rows"),
        ("control", lambda: shared_texts(FACTS, 3_000), "it holds more than"),
        ("control", lambda: columns(FACTS, 3_000, body=one_text("x" * 500_000, 3_000).cast(FIXED)), "another type"),
        ("control", lambda: columns(FACTS, 1, body=pa.array(["x" * 90_000_000])), "it declares 1 rows and 90,"),
    ],
)
def test_small_file_of_much(tmp_path: Path, table: str, made: Callable[[], pa.Table], said: str, read: str) -> None:
    """Bad input: a file of less than 100 kB is refused before it takes memory."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "large.parquet").write_bytes(packed(made()))
    small = columns(ACKS if table == "ack_table" else FACTS, 1)
    (tmp_path / "t" / "small.parquet").write_bytes(packed(small))
    error = refused_for_little(READ, f'files.{read}("large.parquet", 0)', tmp_path, table)
    assert (
        error.startswith("[CORRUPT_TABLE] file large.parquet of the table in ")
        and "cannot be read" in error
        and said in error
    )


def test_committed_acknowledgements_of_much(tmp_path: Path) -> None:
    """Bad input: what a person asks about a group ends at once, too."""
    store = str(tmp_path / "store")
    partq.create_queue(store, "q", "v long", partitions=1, rebalance_delay_ms=0)
    Lasting(store, "a", 1).beat()
    whole = shutil.copytree(store, tmp_path / "whole")
    (file,) = (Path(store) / "groups" / "g" / "acks").glob("*.parquet")
    file.write_bytes(packed(equal_rows(ACKS, 500_000)))
    before = "import spark_partq as partq\npartq.describe_group(sys.argv[2], 'g')"
    error = refused_for_little(before, "partq.describe_group(sys.argv[1], 'g')", store, whole)
    assert error.startswith(
        f"[CORRUPT_TABLE] file {file.name} of the acknowledgements of group 'g' in {store}, version "
    )


def test_a_table_has_no_more_rows_than_its_limit(store: str) -> None:
    """Neither in one file nor in many; and no writer makes more."""
    mine = table(store)
    mine.create([{"n": 0}])
    mine.append([{"n": n} for n in range(999)])
    with pytest.raises(partq.CommitFailedError, match="would have 1,001 rows, more than the 1,000 that readers take"):
        mine.append([{"n": 1}])
    mine.append([{"n": n} for n in range(1_000)], replace=True)
    late = table(store)
    late.refresh()
    assert values(late) == list(range(1_000))
    other = RowTable(Store.at(store), "t", "the table", COLUMNS, 1_001)
    other.refresh()
    other.append([{"n": 1}])
    for one in (late, table(store)):
        with pytest.raises(partq.CorruptTableError, match="it declares 1 rows"):
            one.refresh()


def test_texts_that_rows_share_are_read(tmp_path: Path) -> None:
    """What is measured first is read as it is otherwise."""
    shared = shared_texts(FACTS, 12)
    rows = columns(FACTS, 3_000, body=pa.array(["x" * 50_000, *["é"] * 2_998, None]), seq=pa.array(range(3_000)))
    for written in (shared, rows):
        found = decode_table(packed(written), FACTS, 5_000)
        assert found.schema == FACTS and found.to_pylist() == written.to_pylist()
