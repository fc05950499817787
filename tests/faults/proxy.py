"""Stands in front of an S3 server and does to requests what a network and a busy object store do, by chance and as often as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

# What may befall a request. An answer is cut off only where it has a body, and lost only behind a write.
REFUSED = "503"  # not done
FAILED = "500"  # done or not
UNANSWERED = "no answer"  # done or not, and the connection stays open
LOST = "lost answer"  # done, and the connection ends
SLOW = "slow answer"
CUT = "cut answer"  # its body ends in the middle
FAULTS = (REFUSED, FAILED, UNANSWERED, LOST, SLOW, CUT)

IF_ABSENT = "PUT if absent"  # a put under the condition that there is none of that name
LIST = "LIST"  # a get of names
_WRITES = (IF_ABSENT, "PUT", "POST", "DELETE")
_SLOW_S = (0.2, 1.0)
_CODES = {REFUSED: ("503 Slow Down", "SlowDown"), FAILED: ("500 Internal Server Error", "InternalError")}


class _Request(NamedTuple):
    kind: str  # its method; conditional puts and listings are kinds of their own
    data: bytes  # as it goes to the server


class _Answer(NamedTuple):
    head: bytes
    body: bytes


class FaultProxy:
    """A server on a port of its own, with its own thread; requests go to the server at `port` of this machine.

    Each request goes there over a new connection. So nothing that befalls one of them befalls another.

    Attributes
    ----------
    asked : Counter
        Requests by kind.
    did : Counter
        What befell them, by fault and kind.
    """

    def __init__(self, port: int, seed: int = 0) -> None:
        self._server_port, self._rng = port, Random(seed)
        self._shares: Mapping[str, float] = {}
        self.asked: Counter[str] = Counter()
        self.did: Counter[tuple[str, str]] = Counter()
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.Task[None]] = set()
        self._port = 0
        up = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(up,), daemon=True)
        self._thread.start()
        up.wait()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def count(self, fault: str, kind: str | None = None) -> int:
        """How many requests, or those of a kind, a fault befell."""
        return sum(n for (what, of), n in list(self.did.items()) if what == fault and kind in (None, of))

    @contextlib.contextmanager
    def doing(self, shares: Mapping[str, float]) -> Iterator[None]:
        """In here each of these faults befalls that share of the requests that it can befall."""
        assert set(shares) <= set(FAULTS), shares
        before, self._shares = self._shares, shares
        try:
            yield
        finally:
            self._shares = before

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    # ---- in its thread
    def _run(self, up: threading.Event) -> None:
        self._loop.run_until_complete(self._serve(up))
        self._loop.close()

    async def _serve(self, up: threading.Event) -> None:
        self._ending = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        up.set()
        await self._ending.wait()
        server.close()
        while connections := asyncio.all_tasks() - {asyncio.current_task()}:  # one may just have begun
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio alone forgets a task whose client has left while it waits for the server.
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        # A client that is killed, or is tired of waiting, ends its connection wherever it is.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._answer(await _read(reader), reader, writer):
                await writer.drain()
        writer.close()

    async def _answer(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays."""
        self.asked[request.kind] += 1
        fault = self._drawn(request.kind)
        done = fault not in (REFUSED, FAILED, UNANSWERED) or (fault != REFUSED and self._rng.random() < 0.5)
        answer = await self._forwarded(request) if done else _Answer(b"", b"")
        if fault == CUT and len(answer.body) < 2:
            fault = None
        if fault is not None:
            self.did[fault, request.kind] += 1
        if fault == UNANSWERED:
            await reader.read(1)  # until the client ends the connection
            return False
        if fault == LOST:
            return False
        if fault == CUT:
            writer.write(answer.head + answer.body[: self._rng.randrange(1, len(answer.body))])
            await writer.drain()
            return False
        if fault == SLOW:
            await asyncio.sleep(self._rng.uniform(*_SLOW_S))
        writer.write(_error(fault, request) if fault in _CODES else answer.head + answer.body)
        return True

    def _drawn(self, kind: str) -> str | None:
        for fault, share in self._shares.items():
            possible = kind in _WRITES if fault == LOST else kind in ("GET", LIST) if fault == CUT else True
            if possible and self._rng.random() < share:
                return fault
        return None

    async def _forwarded(self, request: _Request) -> _Answer:
        """What the server says, without its wish to end the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            writer.write(request.data)
            await writer.drain()
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        lines = _without(head.split(b"\r\n"), b"connection")
        names = {line.partition(b":")[0].strip().lower() for line in lines[1:]}
        if request.kind != "HEAD" and not names & {b"content-length", b"transfer-encoding"}:
            lines.append(b"Content-Length: %d" % len(body))
        return _Answer(b"\r\n".join(lines) + b"\r\n\r\n", body)


async def _read(reader: asyncio.StreamReader) -> _Request:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    if b"transfer-encoding" in headers or b"expect" in headers:
        raise NotImplementedError(f"the proxy reads bodies by their length alone: {lines}")
    body = await reader.readexactly(int(headers.get(b"content-length", 0)))
    method = lines[0].split(b" ")[0].decode()
    kind = IF_ABSENT if b"if-none-match" in headers and method == "PUT" else method
    kind = LIST if method == "GET" and b"list-type=2" in lines[0] else kind
    kept = [*_without(lines, b"connection"), b"Connection: close"]
    return _Request(kind, b"\r\n".join(kept) + b"\r\n\r\n" + body)


def _without(lines: list[bytes], name: bytes) -> list[bytes]:
    return [line for line in lines if line.partition(b":")[0].strip().lower() != name]


def _error(fault: str, request: _Request) -> bytes:
    status, code = _CODES[fault]
    body = f"<Error><Code>{code}</Code></Error>"
    headers = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return (headers + ("" if request.kind == "HEAD" else body)).encode()
