"""Where the files of a test are, and what several threads do to them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from spark_partq.storage.files import Files, is_temporary

# More than an object store takes in one part.
LARGE = 11 << 20


@dataclass(frozen=True)
class Place:
    """Where the files of a test are."""

    files: Files
    uri: str
    options: dict[str, str]
    has_folders: bool  # a file can only be put into a folder that is there


def names(files: Files, folder: str, after: str = "") -> list[str]:
    return [info.name for info in files.list_files(folder, after) if not is_temporary(info.name)]


def at_once(*works: Callable[[], object]) -> None:
    """Run them in threads; raises what one of them raises."""
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result(60)
