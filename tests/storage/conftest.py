"""One S3 server for all tests of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.s3server import BUCKET, S3Server, running


@pytest.fixture(scope="package")
def s3() -> Iterator[S3Server]:
    """A server that speaks S3, in a process of its own."""
    with running() as server:
        yield server


@pytest.fixture
def prefix(s3: S3Server) -> str:
    """The URI of a store in it that nothing else uses."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
