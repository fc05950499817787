"""Tables that lack versions, have other ones, were created again or put back: no handle takes them for what it has read."""

from __future__ import annotations

import json

import pytest

import spark_partq as partq
from spark_partq.storage.files import MemoryFiles
from tests.storage.log.damage import INFO, METADATA, PROTOCOL, refused, refused_by_all
from tests.storage.log.tables import (
    FOLDER,
    Watched,
    count,
    entry_path,
    everything,
    fresh,
    handle,
    made,
    put_back,
    stored_files,
)


def test_missing_entry(files: MemoryFiles, always_checks: None) -> None:
    """A gap in front of an entry: for a new handle, and for an old one when it checks."""
    old = made(files, 2)
    count(handle(files), 3)
    files.delete(entry_path(3))
    refused_by_all(files, [old], "version 3 is missing, though there is version 4")


def test_missing_entry_behind_a_checkpoint(files: MemoryFiles, always_checks: None) -> None:
    """The same for a table with a checkpoint: the old handle must not commit into the gap."""
    old = made(files, 2)
    old.checkpoint()
    count(handle(files), 3)
    files.delete(entry_path(3))
    refused_by_all(files, [old], "version 3 is missing, though there is version 4")


def test_first_entries_are_missing(files: MemoryFiles) -> None:
    made(files, 4)
    for version in range(3):
        files.delete(entry_path(version))
    refused_by_all(files, [], "version 0 is missing, though there is version 3")


def test_first_entry_makes_no_table(files: MemoryFiles) -> None:
    """The first entry of a log has the table's metadata and protocol."""
    for content in (INFO, INFO + json.dumps({"protocol": PROTOCOL}), INFO + json.dumps({"metaData": METADATA})):
        files.put(entry_path(0), content.encode())
        refused_by_all(files, [], r"0000\.json: the table's first entry has no protocol and metadata")


@pytest.mark.parametrize("is_local", [True, False])
def test_two_entries_of_one_version(files: MemoryFiles, is_local: bool) -> None:
    """Where two commits had one number, whoever read the one notices when he meets what follows the other."""
    made(files, 2)
    twin = MemoryFiles()
    put_back(twin, stored_files(files))
    count(handle(files))
    old = handle(Watched(files, is_local=is_local))
    old.refresh()
    count(handle(twin))
    files.put(entry_path(3), twin.read(entry_path(3)))
    if is_local:
        refused(old.refresh, "another version 3 than was read before")
    count(handle(files))
    if not is_local:
        refused(old.refresh, "another version 4 than was read before")
    assert fresh(files).version == 4


@pytest.mark.parametrize("versions", [0, 1, 2, 5])
@pytest.mark.parametrize("is_local", [True, False])
def test_table_created_again(files: MemoryFiles, always_checks: None, versions: int, is_local: bool) -> None:
    """Another table of the same name is not taken for the one before, whether it is shorter, as long or longer."""
    made(files, 2)
    old = handle(Watched(files, is_local=is_local))
    old.refresh()
    files.delete_folder(FOLDER)
    made(files, versions)
    if not is_local and versions == 2:
        count(handle(files))  # what is replaced by as many versions shows there with the next one
    before = everything(files)
    for _ in range(2):
        with pytest.raises(partq.CorruptTableError, match=r"the table at /store/t (is another table|went back)"):
            old.refresh()
    assert everything(files) == before


def test_table_deleted(files: MemoryFiles) -> None:
    old = made(files, 2)
    files.delete_folder(FOLDER)
    for one in (old, handle(files)):
        with pytest.raises(partq.CorruptTableError, match="the table has no Delta log at /store/t; it was removed"):
            one.refresh()
    assert everything(files) == {}


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("since", [0, 2, 3, 5])
def test_older_state_put_back(files: MemoryFiles, always_checks: None, is_local: bool, since: int) -> None:
    """A backup under a running handle: noticed at the next refresh, or, if as much was written since, from what follows."""
    made(files, 2)
    backup = stored_files(files)
    count(handle(files), 3)
    old = handle(Watched(files, is_local=is_local))
    assert old.snapshot.version == 5
    put_back(files, backup)
    count(handle(files), since)
    if not is_local and since == 3:
        count(handle(files))
    with pytest.raises(partq.CorruptTableError, match=r"the table at /store/t (went back|has another version)"):
        old.refresh()
    assert fresh(files).version == 2 + since + (not is_local and since == 3)
