"""What an object store answers, as errors that tell apart what is to be done: what is missing, not permitted, or not reached for now."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.errors import NotPermittedError, StoreUnavailableError
from spark_partq.storage.files import FileMissing, Files, open_files
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.queue.messages import MessageWriter
from spark_partq.storage.store import Store

_BEGUN = b"<InitiateMultipartUploadResult><Bucket>files</Bucket><Key>x</Key><UploadId>u</UploadId></InitiateMultipartUploadResult>"
OPTIONS = {
    "aws_region": "us-east-1", "aws_allow_http": "true", "aws_access_key_id": "testing", "aws_secret_access_key": "testing",
}  # fmt: skip


@contextlib.contextmanager
def answering(*statuses: int, code: str = "", begins: bool = False) -> Iterator[tuple[Files, list[str]]]:
    """A store that answers with these, the last one for ever; and what it was asked. With `begins` it lets uploads in parts begin."""
    left, asked = list(statuses), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
            status = left.pop(0) if len(left) > 1 else left[0]
            if begins and self.command == "POST":
                status, body = 200, _BEGUN
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            uri = f"http://127.0.0.1:{server.server_port}"
            yield open_files("s3://files/store", {**OPTIONS, "aws_endpoint_url": uri}), asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [401, 403])
def test_not_permitted(status: int) -> None:
    """It says so at once, of the table too, which is not taken for damaged or missing."""
    with answering(status, code="AccessDenied") as (files, asked):
        with pytest.raises(NotPermittedError, match=r"s3://files/store/a cannot be read: .*credentials"):
            files.read("a")
        assert len(asked) == 1
        with pytest.raises(NotPermittedError, match="credentials"):
            DeltaLog(Store.over(files), "t", "the table").refresh()


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken"])
def test_credentials_that_are_over(code: str) -> None:
    """S3 answers with 400, as to a malformed request."""
    with answering(400, code=code) as (files, _), pytest.raises(NotPermittedError, match=f"{code}.*credentials"):
        files.read("a")


@pytest.mark.parametrize(
    ("begins", "status", "code"),
    [(False, 403, "AccessDenied"), (True, 403, "AccessDenied"), (False, 400, "ExpiredToken")],
)
def test_a_large_file_is_not_permitted(begins: bool, status: int, code: str) -> None:
    """Its parts are sent while it is written: that is an error of this package, too."""
    schema = pa.schema([("k", pa.string()), ("v", pa.binary())])
    rows = pa.RecordBatch.from_pydict({"k": ["a"] * 60, "v": [os.urandom(1 << 20)] * 60}, schema)
    with answering(status, code=code, begins=begins) as (files, _):
        writer = MessageWriter(Store.over(files), "q", schema, ["k"], False)

        def write() -> None:
            writer.write(rows, np.zeros(60, np.int64), np.arange(60))
            writer.finish()

        with pytest.raises(partq.CommitFailedError, match=r"\[NOT_PERMITTED\].*nothing was changed"):
            write()


def test_missing() -> None:
    with answering(404, code="NoSuchKey") as (files, _), pytest.raises(FileMissing):
        files.read("a")


def test_overloaded_for_a_while() -> None:
    """It is asked again."""
    with answering(503, 500, 404, code="NoSuchKey") as (files, asked):
        with pytest.raises(FileMissing):
            files.read("a")
        assert len(asked) == 3


def test_overloaded_for_long() -> None:
    """It is asked a bounded number of times, and then told for what it is: the table is not taken for damaged."""
    with answering(503, code="SlowDown") as (files, asked):
        with pytest.raises(StoreUnavailableError, match=r"cannot be read: .* Check the path, the network") as raised:
            DeltaLog(Store.over(files), "t", "the table").refresh()
        assert raised.type is StoreUnavailableError and 1 < len(asked) <= 20


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options = {**OPTIONS, "aws_endpoint_url": f"http://127.0.0.1:{free.getsockname()[1]}"}
        with pytest.raises(partq.StoreUnavailableError, match=r"s3://files/store.* cannot be read") as raised:
            partq.describe_queue(partq.Store("s3://files/store", options), "q")
    assert raised.type is StoreUnavailableError
