"""An object store whose connections fail while it is asked: it is asked again, and answers as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files import FileAlreadyExists, FileMissing, Files, asking, open_files
from tests.faults.objects import ObjectStore, object_store
from tests.faults.proxy import CUT, IF_ABSENT, UNANSWERED
from tests.s3server import BUCKET


@pytest.fixture(scope="module")
def place() -> Iterator[ObjectStore]:
    with object_store(2) as found:
        yield found


@pytest.fixture(autouse=True)
def _hardly_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(asking, "_FIRST_PAUSE_S", 0.01)


@pytest.fixture
def direct(place: ObjectStore) -> Files:
    """Past the faults."""
    files = open_files(f"s3://{BUCKET}/store", place.options)
    files.put("a/n", b"x" * 3000)
    return files


@pytest.fixture
def files(place: ObjectStore, direct: Files) -> Files:
    return open_files(f"s3://{BUCKET}/store", place.options_through_proxy())


@pytest.fixture
def impatient(place: ObjectStore, direct: Files) -> Files:
    """Its client soon gives up a request that is not answered. A slow machine still answers in that time."""
    return open_files(f"s3://{BUCKET}/store", place.options_through_proxy(timeout="500ms"))


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda f: f.read("a/n"), b"x" * 3000),
        (lambda f: f.open_input("a/n").read(), b"x" * 3000),
        (lambda f: [i.name for i in f.list_files("a")], ["n"]),
        (lambda f: [i.name for i in f.list_files("a", after="m")], ["n"]),
        (lambda f: f.list_folders(""), ["a"]),
    ],
    ids=["read", "range", "list", "list behind a name", "folders"],
)
def test_an_answer_that_ends_in_the_middle(
    place: ObjectStore, files: Files, ask: Callable[[Files], object], answer: object
) -> None:
    before = place.proxy.count(CUT)
    with place.proxy.doing({CUT: 0.4}):
        for _ in range(6):
            assert ask(files) == answer
    assert place.proxy.count(CUT) > before


def test_an_answer_that_there_is_none_ends_in_the_middle(place: ObjectStore, files: Files) -> None:
    """As whoever looks for the next entry of a log mostly gets."""
    before = place.proxy.count(CUT)
    with place.proxy.doing({CUT: 0.4}):
        for _ in range(6):
            with pytest.raises(FileMissing):
                files.read("a/z")
    assert place.proxy.count(CUT) > before


def test_a_deletion_that_is_not_answered(place: ObjectStore, impatient: Files, direct: Files) -> None:
    before = place.proxy.count(UNANSWERED)
    with place.proxy.doing({UNANSWERED: 0.4}):
        for _ in range(3):
            direct.put("b/n", b"")
            impatient.delete("b/n")
            assert direct.info("b/n") is None
            direct.put("b/n", b"")
            impatient.delete_folder("b")
            assert direct.list_folders("") == ["a"]
    assert place.proxy.count(UNANSWERED) > before


def test_a_put_under_a_condition_that_is_not_answered(place: ObjectStore, impatient: Files, direct: Files) -> None:
    """It is in; who put it may be told that there was one."""
    before, found = place.proxy.count(UNANSWERED, IF_ABSENT), 0
    with place.proxy.doing({UNANSWERED: 0.4}):
        for i in range(8):
            try:
                impatient.put_if_absent(f"c/{i}", b"%d" % i)
            except FileAlreadyExists:
                found += 1
            assert direct.read(f"c/{i}") == b"%d" % i
    assert 0 < found < 8 and place.proxy.count(UNANSWERED, IF_ABSENT) > before
    direct.delete_folder("c")


def test_a_connection_that_always_fails(place: ObjectStore, files: Files) -> None:
    """It is asked a bounded number of times, and told for what it is."""
    before = place.proxy.count(CUT)
    with place.proxy.doing({CUT: 1.0}), pytest.raises(StoreUnavailableError, match=r"a cannot be read: .*HTTP error"):
        files.list_files("a")
    assert place.proxy.count(CUT) - before == asking._ASKS
