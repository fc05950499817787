"""The proxy in front of an object store: each fault is what it says, is counted, and ends when it is told to end."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from spark_partq.storage.files import FileAlreadyExists, Files, open_files
from tests.faults.objects import ObjectStore, object_store
from tests.faults.proxy import CUT, FAILED, IF_ABSENT, LIST, LOST, REFUSED, SLOW, UNANSWERED, FaultProxy
from tests.helpers import in_parallel
from tests.s3server import BUCKET

URI = f"s3://{BUCKET}/store"


@pytest.fixture(scope="module")
def place() -> Iterator[ObjectStore]:
    with object_store(1) as found:
        yield found


@pytest.fixture
def proxy(place: ObjectStore) -> FaultProxy:
    """Counted from here."""
    place.proxy.asked.clear()
    place.proxy.did.clear()
    return place.proxy


@pytest.fixture
def direct(place: ObjectStore) -> Files:
    """The files of an empty store, past the proxy."""
    files = open_files(URI, place.options)
    files.delete_folder("")
    return files


@pytest.fixture
def through(place: ObjectStore, direct: Files) -> Files:
    return open_files(URI, place.options_through_proxy(timeout="1s"))


class Asker:
    """One connection to the proxy, which asks once, so that a fault is seen as it is."""

    def __init__(self, proxy: FaultProxy) -> None:
        address = urlsplit(proxy.endpoint)
        assert address.hostname is not None
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=1)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request"}
        self.connection.request(method, f"/{BUCKET}/store/{path}", body, {**signed, **headers})
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def put_if_absent(self, path: str, body: bytes) -> int:
        return self.ask("PUT", path, body, **{"If-None-Match": "*"})[0]


@pytest.fixture
def asker(proxy: FaultProxy, direct: Files) -> Iterator[Asker]:
    made = Asker(proxy)
    yield made
    made.connection.close()


def test_without_a_fault(proxy: FaultProxy, through: Files, direct: Files) -> None:
    through.put("a/n", b"x" * 100_000)
    through.put_if_absent("a/m", b"")
    with pytest.raises(FileAlreadyExists):
        through.put_if_absent("a/m", b"y")
    assert through.read("a/n") == direct.read("a/n") == b"x" * 100_000
    assert through.info("a/z") is None and [info.name for info in through.list_files("a")] == ["m", "n"]
    through.delete("a/n")
    assert direct.info("a/n") is None
    assert {**proxy.asked} == {"PUT": 1, IF_ABSENT: 2, "GET": 1, LIST: 1, "HEAD": 1, "POST": 1} and not proxy.did


def test_several_requests_on_one_connection(asker: Asker) -> None:
    for i in range(3):
        assert asker.put_if_absent(f"a/{i}", b"x") == 200
    assert asker.put_if_absent("a/0", b"y") == 412
    assert asker.ask("GET", "a/0") == (200, b"x")


@pytest.mark.parametrize(("fault", "status"), [(REFUSED, 503), (FAILED, 500)])
def test_errors(proxy: FaultProxy, direct: Files, asker: Asker, fault: str, status: int) -> None:
    """What is answered with 503 is not done, what is answered with 500 half of the time."""
    with proxy.doing({fault: 1.0}):
        assert {asker.put_if_absent(f"a/{i}", b"x") for i in range(20)} == {status}
        assert asker.ask("HEAD", "a/0") == (status, b"")
    done = len(direct.list_files("a"))
    assert done == 0 if fault == REFUSED else 0 < done < 20
    assert proxy.did == {(fault, IF_ABSENT): 20, (fault, "HEAD"): 1}
    assert asker.put_if_absent("a/n", b"x") == 200  # it has ended


def test_a_lost_answer(proxy: FaultProxy, direct: Files, asker: Asker) -> None:
    """The write is in, and its writer does not know. What only reads is answered."""
    with proxy.doing({LOST: 1.0}):
        with pytest.raises(http.client.RemoteDisconnected):
            asker.put_if_absent("a/n", b"x")
        asker.connection.close()
        assert asker.ask("GET", "a/n") == (200, b"x")
    assert direct.read("a/n") == b"x"
    assert proxy.did == {(LOST, IF_ABSENT): 1} and proxy.count(LOST) == 1


def test_no_answer(proxy: FaultProxy, direct: Files, asker: Asker) -> None:
    """It is done or not, and the client waits as long as it likes."""
    asker.connection.timeout = 0.1
    with proxy.doing({UNANSWERED: 1.0}):
        for i in range(12):
            with pytest.raises(TimeoutError):
                asker.put_if_absent(f"a/{i}", b"x")
            asker.connection.close()
    assert 0 < len(direct.list_files("a")) < 12
    assert proxy.did == {(UNANSWERED, IF_ABSENT): 12}


def test_a_slow_answer(proxy: FaultProxy, direct: Files, asker: Asker) -> None:
    with proxy.doing({SLOW: 1.0}):
        asker.connection.timeout = 0.1
        with pytest.raises(TimeoutError):
            asker.put_if_absent("a/n", b"x")
        asker.connection.close()
        asker.connection.timeout = 10
        assert asker.ask("GET", "a/n") == (200, b"x")
    assert proxy.did == {(SLOW, IF_ABSENT): 1, (SLOW, "GET"): 1}


def test_a_cut_answer(proxy: FaultProxy, direct: Files, asker: Asker) -> None:
    direct.put("a/n", b"x" * 1000)
    direct.put("a/empty", b"")
    with proxy.doing({CUT: 1.0}):
        with pytest.raises(http.client.IncompleteRead) as cut:
            asker.ask("GET", "a/n")
        assert 0 < len(cut.value.partial) < 1000
        asker.connection.close()
        assert asker.ask("GET", "a/empty") == (200, b"")  # there is nothing to cut
        assert asker.put_if_absent("a/m", b"x") == 200
    assert proxy.did == {(CUT, "GET"): 1}


def test_a_share(proxy: FaultProxy, asker: Asker) -> None:
    with proxy.doing({REFUSED: 0.3}):
        found = [asker.ask("HEAD", "a/n")[0] for _ in range(100)]
    assert 15 <= found.count(503) <= 45 and set(found) == {503, 404}
    assert proxy.count(REFUSED, "HEAD") == found.count(503) and proxy.asked["HEAD"] == 100


def test_of_several_that_put_at_once_one_does(place: ObjectStore, proxy: FaultProxy, direct: Files) -> None:
    """The server answers one request at a time: moto alone looks whether there is an object, and puts it later."""

    def put(i: int) -> int:
        asker = Asker(proxy)
        with contextlib.closing(asker.connection):
            return asker.put_if_absent("a/n", b"%d" % i)

    for _ in range(20):
        answers = in_parallel([lambda i=i: put(i) for i in range(8)])  # type: ignore[misc]
        assert sorted(answers) == [200, *[412] * 7]  # type: ignore[type-var]
        assert direct.read("a/n") == b"%d" % answers.index(200)
        direct.delete("a/n")
