"""An S3 server to test against, in a process of its own: moto's, which this makes answer as S3 does.

moto looks whether an object is there, and puts it later; so requests are answered one at a time. It tells what it was asked, and loses
an answer or refuses a put on demand.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tools import versitygw

ROOT = Path(__file__).parents[1]
BUCKET = "files"
KEY, SECRET = "testing", "testing"
# Paths that are none of S3's: what was asked since the last time, and how to treat the next put.
_ASKED, _NEXT = "/-/asked", "/-/next/"


@dataclass(frozen=True)
class S3Endpoint:
    """Where a server is that speaks S3."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """Storage options that reach it."""
        keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
        return {"aws_endpoint_url": self.endpoint, "aws_region": "us-east-1", "aws_allow_http": "true", **keys}


class S3Server(S3Endpoint):
    """The server of this file, seen from a test."""

    def asked(self) -> list[str]:
        """The requests since the last call, such as ``GET /files/a/b``."""
        return list(json.loads(self._get(_ASKED)))

    def next_put(self, treatment: str) -> None:
        """``error`` and ``drop`` put it and answer 503 or not at all; ``refuse`` does not put it and answers 409."""
        self._get(_NEXT + treatment)

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.endpoint + path) as answer:
            return bytes(answer.read())


@contextlib.contextmanager
def running() -> Iterator[S3Server]:
    """A server with an empty bucket."""
    command = [sys.executable, "-m", __name__]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
        yield S3Server(endpoint)
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def gateway() -> Iterator[S3Endpoint]:
    """Versity's gateway with an empty bucket, a second server."""
    with (
        tempfile.TemporaryDirectory(prefix="versitygw-") as folder,
        versitygw.running(Path(folder), BUCKET, KEY, SECRET) as endpoint,
    ):
        yield S3Endpoint(endpoint)


class _App:
    """moto behind a lock."""

    def __init__(self, moto: Callable[..., Iterable[bytes]]) -> None:
        self._moto, self._lock = moto, threading.Lock()
        self._asked: list[str] = []
        self._next = ""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
            if path == _ASKED:
                asked, self._asked = self._asked, []
                return _answered(start, "200 OK", json.dumps(asked).encode())
            if path.startswith(_NEXT):
                self._next = path.removeprefix(_NEXT)
                return _answered(start, "200 OK", b"")
            query = environ["QUERY_STRING"]
            self._asked.append(f"{method} {path}{'?' if query else ''}{unquote(query)}")
            treatment, self._next = (self._next, "") if method == "PUT" else ("", self._next)
            if treatment == "refuse":
                environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                return _answered(start, "409 Conflict", b"<Error><Code>ConditionalRequestConflict</Code></Error>")
            if not treatment:
                return list(self._moto(environ, start))
            list(self._moto(environ, lambda *_: lambda _: None))
            if treatment == "drop":
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return _answered(start, "503 Slow Down", b"")


def _answered(start: Callable[..., Any], status: str, body: bytes) -> list[bytes]:
    start(status, [("Content-Length", str(len(body))), ("Content-Type", "application/xml")])
    return [body]


def main() -> None:
    from moto import backends
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        def log_request(self, *_: object) -> None:
            pass

    modules = list(backends.list_of_moto_modules())  # moto looks for them in its folder at every request
    backends.list_of_moto_modules = lambda: modules
    app = _App(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
