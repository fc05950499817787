"""A second S3 server to test against: Versity's gateway, in Go, which keeps objects in a folder and answers many requests at once.

Go fetches and builds it once, into `.versitygw`, and checks it against the public database of checksums.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.helpers import ROOT, eventually
from tests.s3server import BUCKET, KEY, SECRET, S3Endpoint

_VERSION = "v1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{_VERSION}"
_BUILT = ROOT / ".versitygw" / _VERSION  # git ignores it
_BUILD_S = 900


class NoGatewayError(Exception):
    """Why the gateway cannot be had here."""


@functools.cache
def program() -> Path:
    """The gateway's program.

    Raises
    ------
    NoGatewayError
    """
    built = _BUILT / "versitygw"
    if not built.exists():
        go = shutil.which("go")
        if go is None:
            raise NoGatewayError("versitygw: there is no program `go` on the PATH")
        environment = {**os.environ, "GOBIN": str(_BUILT)}
        command = [go, "install", _MODULE]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=_BUILD_S)
        if done.returncode:
            raise NoGatewayError(f"versitygw: `go install {_MODULE}` failed: {done.stderr.strip()[-300:]}")
    return built


@contextlib.contextmanager
def running() -> Iterator[S3Endpoint]:
    """A gateway with an empty bucket."""
    with (
        socket.socket() as free,
        tempfile.TemporaryDirectory(prefix="versitygw-", ignore_cleanup_errors=True) as folder,
    ):
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        Path(folder, BUCKET).mkdir()
        keys = ["--access", KEY, "--secret", SECRET]
        command = [str(program()), "--quiet", "--port", f"127.0.0.1:{port}", *keys, "posix", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            endpoint = S3Endpoint(f"http://127.0.0.1:{port}")
            eventually(lambda: _listens(server, endpoint), "the gateway's answer")
            yield endpoint
        finally:
            server.terminate()
            server.wait()


def _listens(server: subprocess.Popen[bytes], endpoint: S3Endpoint) -> bool:
    assert server.poll() is None, f"the gateway ended with exit code {server.returncode}"
    address = urlsplit(endpoint.endpoint)
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port)).close()
        return True
    return False
