"""An object store of a history: a server that speaks S3, and the proxy through which all applications reach it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from spark_partq.storage.files import Files, open_files
from tests import s3server
from tests.faults.proxy import FaultProxy
from tests.s3server import BUCKET, S3Endpoint

Serve = Callable[[], AbstractContextManager[S3Endpoint]]
SERVERS: Mapping[str, Serve] = {"moto": s3server.running, "versitygw": s3server.gateway}

# So long an application waits for an answer. The default of the client library, half a minute, would be the longest part of a history.
_TIMEOUT = "8s"


@dataclass(frozen=True)
class ObjectStore:
    """Where its bucket is: for the campaign, which sees all that is there, and for applications, behind the proxy."""

    server: S3Endpoint
    proxy: FaultProxy

    @property
    def root(self) -> str:
        return f"s3://{BUCKET}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options that go past the proxy."""
        return self.server.options

    def options_through_proxy(self, **options: str) -> dict[str, str]:
        """The same, through the proxy, and further ones."""
        return {**self.options, "aws_endpoint_url": self.proxy.endpoint, **options}

    @property
    def variables(self) -> dict[str, str]:
        """The environment of applications."""
        return {name.upper(): value for name, value in self.options_through_proxy(aws_timeout=_TIMEOUT).items()}

    def happened(self) -> Counter[str]:
        """Requests by kind, and what befell them."""
        asked = Counter({f"request: {kind}": n for kind, n in self.proxy.asked.items()})
        return asked + Counter({f"{fault}: {kind}": n for (fault, kind), n in self.proxy.did.items()})

    def keep(self, folder: Path) -> None:
        """Copy what is in the bucket into a folder."""
        _copy(open_files(self.root, self.options), "", folder)


@contextlib.contextmanager
def object_store(seed: int, serve: Serve = s3server.running) -> Iterator[ObjectStore]:
    """One that is empty, and ends with its server, which `serve` starts."""
    with serve() as server:
        port = urlsplit(server.endpoint).port
        assert port is not None
        proxy = FaultProxy(port, seed)
        try:
            yield ObjectStore(server, proxy)
        finally:
            proxy.close()


def _copy(files: Files, below: str, folder: Path) -> None:
    place = folder / below
    place.mkdir(parents=True, exist_ok=True)
    for info in files.list_files(below):
        (place / info.name).write_bytes(files.read(f"{below}/{info.name}".lstrip("/")))
    for name in files.list_folders(below):
        _copy(files, f"{below}/{name}".lstrip("/"), folder)
