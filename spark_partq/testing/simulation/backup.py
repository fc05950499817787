"""A store that is put back to what it was at an earlier moment, as from a backup."""

from __future__ import annotations

from collections.abc import Iterator

from spark_partq.storage.files import Files

_ROOTS = "queues", "groups"


def kept(files: Files) -> dict[str, bytes]:
    """All that is in a store now, by path."""
    return {path: files.read(path) for root in _ROOTS for path in _paths(files, root)}


def put_back(files: Files, before: dict[str, bytes]) -> None:
    """Let the store be what it was."""
    for root in _ROOTS:
        files.delete_folder(root)
    for path, data in before.items():
        files.make_folder(path.rpartition("/")[0])
        files.put(path, data)


def _paths(files: Files, folder: str) -> Iterator[str]:
    yield from (f"{folder}/{info.name}" for info in files.list_files(folder))
    for name in files.list_folders(folder):
        yield from _paths(files, f"{folder}/{name}")
