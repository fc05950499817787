"""Records of sinks' batches: which of them a checkpoint forgets."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.queue.records import KEPT_MS, expired_records
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import TableSpec, Transaction
from spark_partq.storage.queue.partition_table import CLOCK, NEXT, SEALED, BatchRecord
from spark_partq.storage.upkeep import UPKEEP
from tests.storage.log.tables import DAY_MS, FIELDS, NOON_MS, fresh, handle

SINKS = ("a", "b.c", "by", "1")


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
    st.builds(Transaction, st.integers(0, 5), st.none() | st.integers(0, 70).map(lambda day: NOON_MS + day * DAY_MS)),
    max_size=12,
)


@given(RECORDS, st.integers(-1, 80))
def test_which_records_expire(records: Mapping[str, Transaction], day: int) -> None:
    """A sink's last batch stays while the sink lives; what its newer batches stand for goes, and nothing else ever does."""
    now = NOON_MS + day * DAY_MS
    newest = min(now, max((txn.updated_ms or 0 for txn in records.values()), default=0))
    dead = {app for app, txn in records.items() if txn.updated_ms is not None and newest - txn.updated_ms > KEPT_MS}
    expected = set()
    for app, txn in records.items():
        kind, _, rest = app.partition("/")
        last = f"partq:sink/{rest.split('/')[0]}"
        if kind == "partq:sink" and rest:
            superseded = last not in records or records[last].version > txn.version
            if superseded or last in dead:
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


def test_checkpoint_forgets_records(files: MemoryFiles, clock: list[int]) -> None:
    """A dead sink's records and superseded ones go with a checkpoint; what the offsets rest on stays."""
    writer = handle(files, expired=expired_records)
    writer.create(TableSpec({"type": "struct", "fields": FIELDS}))
    always = {NEXT: 7, CLOCK: 8, SEALED: 0, "partq:cut/0": 5}
    writer.commit(transactions={**always, **BatchRecord("dead", 3, "q").transactions(0)})
    writer.commit(transactions=BatchRecord("alive", 3, "q").transactions(0))
    clock[0] += KEPT_MS + 1
    writer.commit(transactions=BatchRecord("alive", 4, "r").transactions(1))
    writer.checkpoint()
    left = {app: txn.version for app, txn in fresh(files).transactions.items()}
    assert left == {**always, "partq:sink/alive": 4, "partq:sink/alive/1": 4}
    assert fresh(files).base == writer.version


def test_records_of_many_sinks_do_not_pile_up(files: MemoryFiles, clock: list[int]) -> None:
    """3,000 commits by 300 sinks in 90 days: a checkpoint holds those of the last 30 days."""
    writer = handle(files, expired=expired_records)
    writer.create(TableSpec({"type": "struct", "fields": FIELDS}))
    most, last = 0, handle(files, expired=expired_records)
    for n in range(3_000):
        sink, batch = divmod(n, 10)
        record = BatchRecord(f"sink-{sink}", batch, f"query-{sink}-{batch}")
        clock[0] += 90 * DAY_MS // 3_000
        writer.commit(transactions={NEXT: n + 1, **record.transactions(batch)})
        if n % 100 == 99:
            UPKEEP.wait()
            last.checkpoint()
            found = fresh(files)
            assert found.base == found.version == n + 1 and found.transactions[NEXT].version == n + 1
            most = max(most, len(found.transactions))
            newest = [app for app in found.transactions if app.startswith(f"partq:sink/sink-{sink}")]
            assert sorted(newest) == [f"partq:sink/sink-{sink}", f"partq:sink/sink-{sink}/9"]
    assert most <= 1 + 2 * (100 + 1)
