"""A server on this machine that speaks S3: Versity's gateway, in Go, which keeps objects in a folder and answers many requests at once.

Go fetches and builds it once, into `.versitygw`, and checks it against the public database of checksums.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from tools.ports import free_ports

_VERSION = "v1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{_VERSION}"
_BUILT = Path(__file__).parents[1] / ".versitygw" / _VERSION  # git ignores it
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


@contextmanager
def running(folder: Path, bucket: str, key: str, secret: str, access_log: Path | None = None) -> Iterator[str]:
    """The address of a gateway with an empty bucket in a folder; the log gets a line for each request.

    Raises
    ------
    NoGatewayError
    """
    (folder / bucket).mkdir()
    (port,) = free_ports(1)
    command = [str(program()), "--quiet", "--port", f"127.0.0.1:{port}", "--access", key, "--secret", secret]
    command += [] if access_log is None else ["--access-log", str(access_log)]
    process = subprocess.Popen([*command, "posix", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_connection(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@retry(
    retry=retry_if_exception_type(ConnectionRefusedError), wait=wait_fixed(0.1), stop=stop_after_delay(30), reraise=True
)
def _await_connection(process: subprocess.Popen[bytes], port: int) -> None:
    if process.poll() is not None:
        raise NoGatewayError(f"versitygw ended with exit code {process.returncode}")
    socket.create_connection(("127.0.0.1", port)).close()
