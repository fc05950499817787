"""A console that is running, as a browser without a screen asks it."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock
from urllib.parse import quote, urlencode

from spark_partq.console import app, looks
from spark_partq.console.server import serving
from spark_partq.storage.store import Store, StorePath


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    sent: int  # bytes, as they came

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    port: int

    def get(self, path: str, headers: Mapping[str, str] | None = None, **asked: Any) -> Answer:
        query = urlencode(asked, doseq=True)
        return self.ask("GET", f"{quote(path)}?{query}" if query else quote(path), headers)

    def found(self, path: str, **asked: Any) -> Any:
        answer = self.get(path, **asked)
        assert answer.status == 200, answer.body
        return answer.json

    def refused(self, path: str, status: int, **asked: Any) -> Any:
        answer = self.get(path, **asked)
        assert answer.status == status, answer.body
        return answer.json["error"]

    def post(self, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", "/api/actions", headers, data)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            sent = answer.read()
        finally:
            connection.close()
        got = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(
            answer.status, got, gzip.decompress(sent) if got.get("content-encoding") == "gzip" else sent, len(sent)
        )


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """On a machine that is slow, too, each answer waits for its look, and no look is followed by a pause."""
    with mock.patch.object(looks, "_LONG_S", float("inf")), mock.patch.object(app, "_PATIENCE_S", None):
        yield


@contextlib.contextmanager
def console(
    store: StorePath, every_s: float = 0.0, token: str | None = None, host: str = "127.0.0.1"
) -> Iterator[Served]:
    """Each request looks at the store anew, unless an interval is given."""
    with patient(), serving(Store.at(store), host, 0, every_s, token) as port:
        yield Served(port)
