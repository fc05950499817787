"""A large file that an object store refuses while its parts are sent: an error of this package, and nothing was changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.storage.queue.messages import MessageWriter
from spark_partq.storage.store import Store

_BEGUN = "<InitiateMultipartUploadResult><Bucket>files</Bucket><Key>x</Key><UploadId>u</UploadId></InitiateMultipartUploadResult>"


class Refusing(BaseHTTPRequestHandler):
    """Refuses everything; with `begins` an upload in parts may begin."""

    protocol_version = "HTTP/1.1"
    status, code, begins = 403, "AccessDenied", False

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        may = self.begins and self.command == "POST"
        body = (_BEGUN if may else f"<Error><Code>{self.code}</Code></Error>").encode()
        self.send_response(200 if may else self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer


@pytest.fixture
def refusing() -> Iterator[tuple[type[Refusing], dict[str, str]]]:
    class Own(Refusing):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield (
            Own,
            {
                "aws_endpoint_url": f"http://127.0.0.1:{server.server_port}",
                "aws_region": "us-east-1",
                "aws_allow_http": "true",
                "aws_access_key_id": "a",
                "aws_secret_access_key": "secret",
            },
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("begins", "status", "code"),
    [(False, 403, "AccessDenied"), (True, 403, "AccessDenied"), (False, 400, "ExpiredToken")],
)
def test_a_large_file(refusing: tuple[type[Refusing], dict[str, str]], begins: bool, status: int, code: str) -> None:
    """Its parts are sent while it is written."""
    handler, options = refusing
    handler.begins, handler.status, handler.code = begins, status, code
    schema = pa.schema([("k", pa.string()), ("v", pa.binary())])
    rows = pa.RecordBatch.from_pydict({"k": ["a"] * 60, "v": [os.urandom(1 << 20)] * 60}, schema)
    writer = MessageWriter(Store("s3://files/w", options), "q", schema, ["k"], False)

    def write() -> None:
        writer.write(rows, np.zeros(60, np.int64), np.arange(60))
        writer.finish()

    with pytest.raises(partq.CommitFailedError, match=r"\[NOT_PERMITTED\].*nothing was changed"):
        write()
