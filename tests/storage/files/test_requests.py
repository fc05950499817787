"""What goes over the wire to an object store: how many requests, and what becomes of answers that are lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.core.payload.schema import with_columns
from spark_partq.storage.files import FileAlreadyExists, FileMissing, Files, open_files
from spark_partq.storage.log import Add, DeltaLog, TableSpec
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from tests.s3server import BUCKET, S3Server

SPEC = TableSpec(with_columns({"type": "struct", "fields": []}, ("v", "long")))


@pytest.fixture
def files(s3: S3Server, prefix: str) -> Files:
    return open_files(prefix, s3.options)


def handle(files: Files) -> DeltaLog:
    return DeltaLog(Store.over(files), "t", "the table")


def commit(log: DeltaLog, count: int = 1) -> None:
    for _ in range(count):
        log.commit(adds=[Add(f"{log.version}.parquet", 1, {})])


@pytest.fixture
def log(s3: S3Server, files: Files) -> DeltaLog:
    """A handle on a table of 3 versions, which knows them; requests count from here."""
    made = handle(files)
    made.create(SPEC)
    commit(made, 2)
    made.refresh()
    s3.asked()
    return made


def test_a_look_that_finds_nothing(s3: S3Server, log: DeltaLog) -> None:
    for _ in range(3):
        assert not log.refresh()
        assert len(s3.asked()) <= 1


def test_a_look_that_finds_a_commit(s3: S3Server, files: Files, log: DeltaLog) -> None:
    other = handle(files)
    other.refresh()
    commit(other)
    s3.asked()
    assert log.refresh()
    assert len(s3.asked()) <= 2
    commit(other, 5)
    s3.asked()
    assert log.refresh()
    assert len(s3.asked()) <= 6
    assert log.version == 8


def test_now_and_then_a_look_goes_further(
    s3: S3Server, files: Files, log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the log was cleaned up under it is asked every half minute."""
    clock, later = SYSTEM.monotonic_s, 0
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: clock() + later)
    for most in (3, 4):
        later += 31
        assert not log.refresh()
        assert 1 < len(s3.asked()) <= most
        assert not log.refresh()
        assert len(s3.asked()) <= 1
        log.checkpoint()  # from now on there is a hint
        s3.asked()


def test_a_commit(s3: S3Server, log: DeltaLog) -> None:
    """One to put it, and one to see that its predecessor is there."""
    for _ in range(3):
        commit(log)
        assert len(s3.asked()) <= 2


def test_opening_a_table(s3: S3Server, files: Files, log: DeltaLog) -> None:
    """The hint, a listing, the checkpoint, each entry behind it, and the one that is not there."""
    assert handle(files).refresh()
    assert len(s3.asked()) <= 2 + 3 + 1  # no checkpoint yet
    log.checkpoint()
    commit(log, 2)
    s3.asked()
    assert handle(files).refresh()
    assert len(s3.asked()) <= 3 + 2 + 1
    files.delete("t/_delta_log/_last_checkpoint")
    s3.asked()
    assert handle(files).refresh()
    assert len(s3.asked()) <= 3 + 2 + 1


def test_small_operations(s3: S3Server, files: Files) -> None:
    """Each is one request."""
    files.put("a/n", b"x")
    s3.asked()
    for do in (
        lambda: files.put_if_absent("a/m", b"x"),
        lambda: files.put("a/n", b"y"),
        lambda: files.read("a/n"),
        lambda: files.info("a/n"),
        lambda: files.info("a/z"),
        lambda: files.list_files("a"),
        lambda: files.list_files("a", after="m"),
        lambda: files.list_folders("a"),
        lambda: files.delete("a/n"),
    ):
        do()
        assert len(s3.asked()) == 1
    files.make_folder("a")
    assert s3.asked() == []


# ---- answers that are lost
@pytest.mark.parametrize("treatment", ["error", "drop"])
def test_a_put_whose_answer_was_lost(s3: S3Server, files: Files, treatment: str) -> None:
    """The client asks again. To put under a condition then fails, although it was this process that had put it."""
    s3.next_put(treatment)
    files.put("a/n", b"x")
    assert files.read("a/n") == b"x"
    s3.next_put(treatment)
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent("a/m", b"mine")
    assert files.read("a/m") == b"mine"


def test_a_put_that_is_refused_while_another_is_under_way(s3: S3Server, files: Files) -> None:
    """The name counts as taken, and yet there may be nothing."""
    s3.next_put("refuse")
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent("a/n", b"x")
    with pytest.raises(FileMissing):
        files.read("a/n")
    files.put_if_absent("a/n", b"x")


@pytest.mark.parametrize("treatment", ["error", "drop", "refuse"])
def test_a_commit_is_known_by_its_token(s3: S3Server, files: Files, log: DeltaLog, treatment: str) -> None:
    """It is in, once, whatever the store answered."""
    s3.next_put(treatment)
    commit(log)
    assert log.version == 3
    assert not log.refresh()
    fresh = handle(files)
    fresh.refresh()
    assert fresh.version == 3
    assert fresh.snapshot == log.snapshot


# ---- stores that are not there
def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    files = open_files("s3://elsewhere/store", s3.options)
    looks: list[Callable[[], object]] = [
        lambda: files.list_files("a"), lambda: files.list_folders("a"), lambda: files.list_files("a", "n")
    ]  # fmt: skip
    for do in looks:
        with pytest.raises(StoreUnavailableError, match=r"s3://elsewhere/store/a cannot be read: .* 404") as raised:
            do()
        assert "\n" not in str(raised.value)
    for put in (files.put, files.put_if_absent):
        with pytest.raises(StoreUnavailableError, match=r"s3://elsewhere/store/a/n cannot be written: .* 404"):
            put("a/n", b"")


def test_the_reason_that_a_store_gives_is_told(s3: S3Server) -> None:
    with pytest.raises(StoreUnavailableError, match="NoSuchBucket"):
        open_files("s3://elsewhere/store", s3.options).list_files("a")


def test_options_that_others_understand(s3: S3Server, prefix: str) -> None:
    """Those of delta-rs alone have no effect; values that cannot be right are one clear error."""
    foreign = {"AWS_S3_LOCKING_PROVIDER": "none", "aws_s3_allow_unsafe_rename": "true", "nonsense": "1"}
    files = open_files(prefix, {**s3.options, **foreign, "aws_timeout": "5s", "CONNECT_TIMEOUT": "5s"})
    files.put("a/n", b"x")
    assert files.read("a/n") == b"x"
    for uri, wrong in ((prefix, {"aws_allow_http": "perhaps"}), (prefix, {"timeout": "soon"}), ("s4://files/x", {})):
        with pytest.raises(StoreUnavailableError, match="cannot be reached") as raised:
            open_files(uri, {**s3.options, **wrong})
        assert "\n" not in str(raised.value) and uri in str(raised.value)


def test_a_store_lies_below_its_uri(s3: S3Server, prefix: str) -> None:
    """And sees nothing of what lies beside it, of which the name begins in the same way."""
    files, beside = open_files(prefix, s3.options), open_files(f"{prefix}-2", s3.options)
    beside.put("a/n", b"x")
    files.put("a/m", b"x")
    assert [info.name for info in files.list_files("a")] == ["m"]
    files.delete_folder("")
    assert files.list_folders("") == []
    assert beside.read("a/n") == b"x"
    bucket = open_files(f"s3://{BUCKET}", s3.options)
    assert f"{prefix}-2".rpartition("/")[2] in bucket.list_folders("")
