"""How a replicator puts a file that another pass may put at the same time."""

from __future__ import annotations

from unittest import mock

import pytest

from spark_partq.storage.files import FileAlreadyExists, FileMissing, MemoryFiles
from spark_partq.storage.replica.copied_files import put_same


def test_the_same_file_and_another_one() -> None:
    files = MemoryFiles()
    assert put_same(files, "a/b", b"one")
    assert not put_same(files, "a/b", b"one")
    for other in (b"two", b"", b"one more"):
        with pytest.raises(FileAlreadyExists):
            put_same(files, "a/b", other)
    assert files.read("a/b") == b"one"


@pytest.mark.parametrize("refused", [9, 10])
def test_a_file_that_is_said_to_be_there_and_is_not(refused: int) -> None:
    """An object store may say so while another process puts the file. Ten times is enough."""
    files = mock.Mock(MemoryFiles)
    files.put_if_absent.side_effect = [FileAlreadyExists("a/b")] * refused + [None]
    files.read.side_effect = FileMissing("a/b")
    if refused == 9:
        assert put_same(files, "a/b", b"one")
    else:
        with pytest.raises(FileAlreadyExists):
            put_same(files, "a/b", b"one")
    assert files.put_if_absent.call_count == 10
