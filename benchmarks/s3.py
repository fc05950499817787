"""A server on this machine that speaks S3, in a process of its own: moto's, or Versity's gateway, which answers many requests at once."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenacity import retry, stop_after_delay, wait_fixed

from tools import versitygw
from tools.ports import free_ports

_BUCKET, _KEY, _SECRET = "bench", "testing", "testing"


@dataclass(frozen=True)
class Server:
    """Where it is, and how it is reached."""

    endpoint: str
    access_log: Path
    bucket: str = f"s3://{_BUCKET}"

    @property
    def options(self) -> dict[str, str]:
        keys = {"aws_access_key_id": _KEY, "aws_secret_access_key": _SECRET}
        return {"aws_endpoint_url": self.endpoint, "aws_region": "us-east-1", "aws_allow_http": "true", **keys}

    def requests(self) -> int:
        """How many it has answered so far."""
        return len(self.access_log.read_text().splitlines())


@contextmanager
def object_store(folder: Path) -> Iterator[Server]:
    """A server with an empty bucket; its access log lies in the folder."""
    (port,) = free_ports(1)
    made = Server(f"http://127.0.0.1:{port}", folder / "access.log")
    with made.access_log.open("w") as sink:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sink)
    try:
        _await_answer(made.endpoint)
        urllib.request.urlopen(urllib.request.Request(f"{made.endpoint}/{_BUCKET}", method="PUT")).close()
        yield made
    finally:
        process.terminate()
        process.wait()


@contextmanager
def gateway(folder: Path) -> Iterator[Server]:
    """The same of Versity's gateway, whose objects lie in the folder, too."""
    log, objects = folder / "access.log", folder / "objects"
    log.touch()
    objects.mkdir()
    with versitygw.running(objects, _BUCKET, _KEY, _SECRET, log) as endpoint:
        yield Server(endpoint, log)


@retry(wait=wait_fixed(0.1), stop=stop_after_delay(30), reraise=True)
def _await_answer(endpoint: str) -> None:
    urllib.request.urlopen(endpoint).close()
