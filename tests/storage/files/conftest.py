"""Files in each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_partq.storage.files import Files, MemoryFiles, open_files
from spark_partq.testing.faults import FaultyFiles
from tests import s3server
from tests.s3server import S3Endpoint
from tests.storage.files.places import Place


@pytest.fixture(scope="package")
def gateway(needs_gateway: None) -> Iterator[S3Endpoint]:
    """A second server that speaks S3."""
    with s3server.gateway() as server:
        yield server


@pytest.fixture(params=["disk", "memory", "s3", pytest.param("gateway", marks=pytest.mark.long), "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "disk":
            return Place(open_files(str(tmp_path), {}), str(tmp_path), {}, True)
        case "memory":
            return Place(MemoryFiles(), "", {}, False)
        case "s3" | "gateway":
            uri, options = request.getfixturevalue("prefix"), request.getfixturevalue(request.param).options
            return Place(open_files(uri, options), uri, options, False)
        case _:
            return Place(FaultyFiles(open_files(str(tmp_path), {})), "", {}, True)


@pytest.fixture
def files(place: Place) -> Files:
    """Files with the folders `a` and `b`."""
    place.files.make_folder("a")
    place.files.make_folder("b")
    return place.files
