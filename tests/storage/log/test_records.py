"""Records of sinks' batches: which of them a checkpoint forgets."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.queue.records import (
    FORGOTTEN,
    KEPT_MS,
    BatchRecord,
    expired_records,
    may_be_forgotten,
    silent_sinks,
)
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import TableSpec, Transaction
from spark_partq.storage.queue.partition_table import CLOCK, NEXT, SEALED
from spark_partq.storage.upkeep import UPKEEP
from tests.storage.log.tables import DAY_MS, FIELDS, NOON_MS, fresh, handle

SINKS = ("a", "b.c", "by", "1", "_stuck")


def _apps() -> st.SearchStrategy[str]:
    sinks = st.sampled_from(SINKS)
    return st.one_of(
        st.sampled_from([NEXT, CLOCK, SEALED, "partq:cut/0", "partq:cut/7", "other", "partq:sinks"]),
        sinks.map("partq:sink/{}".format),
        st.tuples(sinks, st.integers(0, 3)).map(lambda pair: "partq:sink/{}/{}".format(*pair)),
        sinks.map("partq:discarded/{}".format),
    )


RECORDS = st.dictionaries(
    _apps(),
    st.builds(
        Transaction, st.integers(FORGOTTEN, 5), st.none() | st.integers(0, 70).map(lambda day: NOON_MS + day * DAY_MS)
    ),
    max_size=12,
)


@given(RECORDS, st.integers(-1, 80))
def test_which_records_expire(records: Mapping[str, Transaction], day: int) -> None:
    """A sink's last batch stays until it is forgotten; what its newer batches stand for goes, and nothing else ever does."""
    now = NOON_MS + day * DAY_MS
    newest = min(now, max((txn.updated_ms or 0 for txn in records.values()), default=0))
    dead = {app for app, txn in records.items() if txn.updated_ms is not None and newest - txn.updated_ms > KEPT_MS}
    expected = set()
    for app, txn in records.items():
        kind, _, rest = app.partition("/")
        last = f"partq:sink/{rest.split('/')[0]}"
        if kind == "partq:sink" and rest and not rest.startswith("_stuck"):
            superseded = last not in records or records[last].version > txn.version
            if superseded or records[last].version == FORGOTTEN:
                expected.add(app)
        elif kind == "partq:discarded" and rest and app in dead:
            expected.add(app)
    found = list(expired_records(records, now))
    assert len(found) == len(set(found)) and set(found) == expected
    kept = {app: txn for app, txn in records.items() if app not in expected}
    assert {app for app in records if app in (NEXT, CLOCK, SEALED) or app.startswith("partq:cut/")} <= set(kept)
    assert set(expired_records(kept, now)) <= dead  # with the newest record gone others may count as young again


@given(RECORDS, st.integers(0, 80), st.integers(0, 80))
def test_a_wrong_clock_expires_nothing_of_the_living(records: Mapping[str, Transaction], day: int, later: int) -> None:
    """Time goes on only as far as the table was written; by itself a clock that is ahead ends no sink."""
    last = max((txn.updated_ms or 0 for txn in records.values()), default=0)
    at_last = set(expired_records(records, last))
    assert set(expired_records(records, max(last, NOON_MS + later * DAY_MS))) == at_last
    assert set(expired_records(records, NOON_MS + day * DAY_MS)) <= at_last


@given(RECORDS, st.integers(-1, 80))
def test_which_sinks_are_silent(records: Mapping[str, Transaction], day: int) -> None:
    """Those whose last batch in the table is 30 days old; all of their records can be told from those of others."""
    now = NOON_MS + day * DAY_MS
    found = silent_sinks(records, now)
    assert set(found) == {
        app.removeprefix("partq:sink/")
        for app, txn in records.items()
        if app.startswith("partq:sink/") and app.count("/") == 1 and txn.version != FORGOTTEN
    }
    for sink, is_silent in found.items():
        at = records[f"partq:sink/{sink}"].updated_ms
        assert is_silent == (at is not None and now - at > KEPT_MS)
    silent = {sink for sink, is_silent in found.items() if is_silent}
    of_sinks = {app: app.split("/")[1] for app in records if app.startswith("partq:sink/")}
    assert may_be_forgotten(records, now) == {app for app, sink in of_sinks.items() if sink in silent}
    assert may_be_forgotten(records, now, ["a"]) == {app for app, sink in of_sinks.items() if sink in silent & {"a"}}


def test_checkpoint_forgets_records(files: MemoryFiles, clock: list[int]) -> None:
    """Superseded ones go with a checkpoint, and forgotten ones; what the offsets rest on stays, and each sink's last."""
    writer = handle(files, expired=expired_records)
    writer.create(TableSpec({"type": "struct", "fields": FIELDS}))
    always = {NEXT: 7, CLOCK: 8, SEALED: 0, "partq:cut/0": 5}
    writer.commit(transactions={**always, **BatchRecord("dead", 3, "q").transactions(0)})
    writer.commit(
        transactions={**BatchRecord("alive", 3, "q").transactions(0), **BatchRecord("quiet", 0).transactions(0)}
    )
    writer.commit(transactions=dict.fromkeys(["partq:sink/dead", "partq:sink/dead/0"], FORGOTTEN))
    clock[0] += KEPT_MS + 1
    writer.commit(transactions=BatchRecord("alive", 4, "r").transactions(1))
    assert writer.recorded("partq:sink/dead") == FORGOTTEN
    writer.checkpoint()
    left = {app: txn.version for app, txn in fresh(files).transactions.items()}
    quiet = {"partq:sink/quiet": 0, "partq:sink/quiet/0": 0}
    assert left == {**always, **quiet, "partq:sink/alive": 4, "partq:sink/alive/1": 4}
    assert fresh(files).base == writer.version


def test_records_of_many_sinks_do_not_pile_up(files: MemoryFiles, clock: list[int]) -> None:
    """3,000 commits by 300 sinks, each forgotten later: a checkpoint holds those of the last 100 and no other."""
    writer = handle(files, expired=expired_records)
    writer.create(TableSpec({"type": "struct", "fields": FIELDS}))
    most, last = 0, handle(files, expired=expired_records)
    for n in range(3_000):
        sink, batch = divmod(n, 10)
        record = BatchRecord(f"sink-{sink}", batch, f"query-{sink}-{batch}")
        gone = BatchRecord(f"sink-{sink - 100}", FORGOTTEN).transactions(9) if sink >= 100 and batch == 0 else {}
        writer.commit(transactions={NEXT: n + 1, **record.transactions(batch), **gone})
        if n % 100 == 99:
            UPKEEP.wait()
            last.checkpoint()
            found = fresh(files)
            assert found.base == found.version == n + 1 and found.transactions[NEXT].version == n + 1
            most = max(most, len(found.transactions))
            newest = [app for app in found.transactions if app.startswith(f"partq:sink/sink-{sink}")]
            assert sorted(newest) == [f"partq:sink/sink-{sink}", f"partq:sink/sink-{sink}/9"]
    assert most <= 1 + 2 * (100 + 1)
