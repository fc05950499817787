"""Who is answered, what a browser is told to refuse, and who may change something."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

import spark_partq as partq
from spark_partq.console import server
from spark_partq.console.app import page_files
from spark_partq.console.guard import is_loopback, is_own_name, new_token
from spark_partq.core.group.facts import Kind
from tests.console.served import Served, console
from tests.groups import Consumer, Lasting
from tests.helpers import eventually

TOKEN = "right-token"
DISABLE = {"action": "ingress", "queue": "q", "enabled": False}


# ---- names
@pytest.mark.parametrize(
    "asked", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "10.0.0.7", "", "[", "a:b:c"]
)
def test_other_names_are_refused(still: Served, asked: str) -> None:
    """A page whose name was made to lead here (DNS rebinding) still asks for that name."""
    for path in ("/", "/page/main.js", "/api/store"):
        answer = still.get(path, {"host": asked})
        assert answer.status == 421 and b"--host" in answer.body


@pytest.mark.parametrize("asked", ["127.0.0.1", "localhost:9000", "LOCALHOST", "localhost.", "[::1]:8765"])
def test_own_names(still: Served, asked: str) -> None:
    """Whatever the port is: a tunnel has one of its own."""
    assert still.get("/api/store", {"host": asked}).status == 200


def test_names_of_a_console_for_other_machines() -> None:
    """Addresses, as no name leads others here by them; the name that was given, and that of the machine."""
    for asked in ("10.0.0.7:8765", "[fe80::1]", "localhost", socket.gethostname(), "10.0.0.7"):
        assert is_own_name(asked, "0.0.0.0"), asked
    assert is_own_name("queues.internal:80", "queues.internal") and not is_own_name("evil.example", "0.0.0.0")


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "10.0.0.7", "queues.internal", "")] == [False] * 4


# ---- headers and the page
def test_headers(still: Served) -> None:
    for answer in (
        still.get("/"),
        still.get("/api/store"),
        still.get("/nowhere"),
        still.get("/", {"host": "evil"}),
    ):
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert (
            answer.headers["x-content-type-options"] == "nosniff" and answer.headers["referrer-policy"] == "no-referrer"
        )
        assert "access-control-allow-origin" not in answer.headers and "server" not in answer.headers


def test_the_page_needs_nothing_from_elsewhere(still: Served) -> None:
    """Each file that a file names is there; nothing is inline, and no script makes markup of a text."""
    files = page_files()
    assert still.get("/").body == files["index.html"][0]
    for name, (data, type_) in files.items():
        answer = still.get(f"/page/{name}")
        assert answer.body == data and answer.headers["content-type"].startswith(type_) and len(data) < 20_000
        text = data.decode()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|eval\(|new Function", text
        ), name
        assert not re.findall(
            r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[a-z]",
            re.sub(r"^\s*//.*|(?<=[;{}]) //.*|/\*.*?\*/", "", text, flags=re.M),
        ), name
        for used in re.findall(r"""(?:from "\./|(?:href|src)="page/)([\w.]+)\"""", text):
            assert used in files, (name, used)
    page = files["index.html"][0].decode()
    assert not re.search(r"\son\w+=|style=|<style|<script(?![^>]*src=)", page)


def test_the_page_knows_every_kind_of_fact() -> None:
    listed = re.search(r"KINDS = \[(.*?)\]", page_files()["history.js"][0].decode(), re.DOTALL)
    assert listed and sorted(re.findall(r'"(\w+)"', listed[1])) == sorted(Kind)


def test_only_files_of_the_page_are_served(still: Served) -> None:
    for path in ("/page/../app.py", "/page/%2e%2e%2fapp.py", "/page/nothing.js", "/page/", "/app.py"):
        assert still.ask("GET", path).status == 404, path


def test_only_one_place_is_written_to(still: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert still.ask(method, "/api/store", {}, b"{}").status == 405
    assert still.ask("GET", "/api/actions").status == 405


# ---- actions
def headers(served: Served, token: str = TOKEN, origin: str | None = None) -> dict[str, str]:
    return {"x-partq-token": token, "origin": origin or f"http://127.0.0.1:{served.port}"}


def ingress(store: str) -> bool:
    return partq.describe_queue(store, "q").ingress


def test_without_actions_nothing_is_changed(served: Served, store: str) -> None:
    for token in ("", "None", TOKEN):
        answer = served.post(DISABLE, headers(served, token))
        assert answer.status == 403 and "--actions" in answer.json["error"]["message"]
    assert ingress(store) and served.found("/api/store")["actions"] is False


def test_who_may_act(store: str, first: Consumer) -> None:
    """Who has the token, and is the page itself."""
    with console(store, token=TOKEN) as served:
        right = headers(served)
        wrong: list[dict[str, str]] = [
            {}, {"origin": right["origin"]}, {"x-partq-token": TOKEN}, headers(served, "wrong"), headers(served, TOKEN[:-1]), headers(served, "é"),
            headers(served, origin="http://evil.example"), headers(served, origin="null"), headers(served, origin="http://[bad"), headers(served, origin="http://127.0.0.1:1"),
        ]  # fmt: skip
        for given in wrong:
            encoded = {name: value.encode().decode("latin-1") for name, value in given.items()}
            assert served.post(DISABLE, encoded).status == 403, given
            assert ingress(store)
        assert served.post(DISABLE, right).json == {"done": "ingress of queue q is disabled"}
        assert not ingress(store) and served.found("/api/store")["actions"] is True
        assert served.post({**DISABLE, "enabled": True}, right).status == 200 and ingress(store)


def test_reset(store: str, first: Consumer) -> None:
    """The first press says what would be set; a group in which somebody consumes is refused."""
    reset = {"action": "reset-offsets", "group": "g", "to": "latest"}
    with console(store, token=TOKEN) as served, ThreadPoolExecutor(1) as browser:
        asked = browser.submit(served.post, reset, headers(served))
        while not asked.done():
            first.beat()
        assert asked.result().json["error"]["class"] == "GROUP_ACTIVE"
        first.leave()
        told = served.post(reset, headers(served)).json
        assert told == {"done": "would set 4 partitions: 0 messages come again, 37 are skipped"}
        assert partq.describe_group(store, "g").lag == 37
        assert served.post({**reset, "dry_run": False}, headers(served)).json["done"].startswith("set 4 partitions")
        assert partq.describe_group(store, "g").lag == 0


def test_rebalance(store: str, first: Consumer) -> None:
    """A member that has died is taken out, though no query of the group is alive to do that."""
    with console(store, token=TOKEN) as served:
        first.leave()
        Consumer(store, "dead", session_timeout_ms=300)
        assert (
            "group g is rebalanced" in served.post({"action": "rebalance", "group": "g"}, headers(served)).json["done"]
        )
        assert served.found("/api/store")["rebalancing"] == ["g"]
        eventually(lambda: not partq.describe_group(store, "g").members, "the end of the dead member")
        eventually(lambda: not served.found("/api/store")["rebalancing"], "the end of the rebalancer")
        assert (
            served.post({"action": "rebalance", "group": "nobody"}, headers(served)).json["error"]["class"]
            == "GROUP_NOT_FOUND"
        )


def test_what_is_no_action(store: str, first: Consumer) -> None:
    bodies = [
        b"", b"{", b"[]", b'"x"', b"\xff", b"{}", b'{"action":"delete-queue","queue":"q"}', b'{"action":"ingress","queue":"q","enabled":"no"}',
        b'{"action":"ingress","queue":"q","enabled":false,"more":1}', b"[" * 70_000,
    ]  # fmt: skip
    with console(store, token=TOKEN) as served:
        for body in bodies:
            answer = served.post(body, headers(served))
            assert answer.status == 400 and "no action of the console" in answer.json["error"]["message"], body
    assert ingress(store)


def test_tokens_are_random() -> None:
    assert len({new_token() for _ in range(10)}) == 10 and len(new_token()) >= 32


# ---- where it listens
def test_where_another_program_listens(store: str, first: Consumer) -> None:
    with (
        console(store) as served,
        pytest.raises(partq.InvalidArgumentError, match=f"this process cannot listen on 127.0.0.1, port {served.port}"),
        server.serving(partq.Store(store), "127.0.0.1", served.port),
    ):
        pass


def test_when_it_has_ended(store: str, first: Consumer) -> None:
    Lasting(store, "b")
    with console(store) as served:
        assert served.get("/").status == 200
    with pytest.raises(OSError):
        served.get("/")
