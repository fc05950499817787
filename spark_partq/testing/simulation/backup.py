"""A store that is put back to what it was at an earlier moment, as from a backup."""

from __future__ import annotations

from collections.abc import Iterator

from spark_partq.storage.files import Files

_ROOTS = "queues", "groups"


def kept(files: Files) -> dict[str, bytes]:
    """All that is in a store now, by path."""
    return {path: files.read(path) for root in _ROOTS for path in _paths(files, root)}


def put_back(files: Files, before: dict[str, bytes]) -> None:
    """Let the store be what it was. Data files stay that somebody has put and is about to commit."""
    for path in [path for root in _ROOTS for path in _paths(files, root)]:
        if path not in before and ("/_delta_log/" in path or not path.endswith(".parquet")):
            files.delete(path)
    for path, data in before.items():
        files.make_folder(path.rpartition("/")[0])
        files.put(path, data)


def _paths(files: Files, folder: str) -> Iterator[str]:
    yield from (f"{folder}/{info.name}" for info in files.list_files(folder))
    for name in files.list_folders(folder):
        yield from _paths(files, f"{folder}/{name}")
