"""Files in each kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_partq.storage.files import Files, MemoryFiles, open_files
from spark_partq.testing.faults import FaultyFiles
from tests.storage.files.places import Place


@pytest.fixture(params=["disk", "memory", "s3", "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "disk":
            return Place(open_files(str(tmp_path), {}), str(tmp_path), {}, True)
        case "memory":
            return Place(MemoryFiles(), "", {}, False)
        case "s3":
            uri, options = request.getfixturevalue("prefix"), request.getfixturevalue("s3").options
            return Place(open_files(uri, options), uri, options, False)
        case _:
            return Place(FaultyFiles(open_files(str(tmp_path), {})), "", {}, True)


@pytest.fixture
def files(place: Place) -> Files:
    """Files with the folders `a` and `b`."""
    place.files.make_folder("a")
    place.files.make_folder("b")
    return place.files
