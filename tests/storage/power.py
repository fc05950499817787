"""What a power cut leaves of a folder: what was forced to the disk, and of the rest nothing, or any part.

A file's content is on the disk as it was when the file was last forced, and the names in a folder as they were when the folder was. All
else is in the memory of the machine. File systems keep more than that; none keeps less.
"""

from __future__ import annotations

import contextlib
import os
import random
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

Names = dict[str, int]  # of a folder: name -> inode


class Power:
    """Watches a folder from the moment it is empty.

    Parameters
    ----------
    before : function
        Called before anything is forced, when most can be lost.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
        self._root, self._before = root, before
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, Names] = {}
        self._held: dict[int, int] = {}  # inode -> a descriptor, so that it is given to no other file
        self._lock, self._looking = threading.RLock(), False
        self._force(root)
        patch.setattr(os, "fsync", self._forced)
        patch.setattr(os, "sync", self._all_forced)

    def close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def _forced(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}")
        if os.readlink(path).startswith(str(self._root)):  # else it is `before` that forces something elsewhere
            with self._lock:  # who else forces something waits
                self._look()
                self._force(path)

    def _all_forced(self) -> None:
        if not self._looking:
            with self._lock:
                self._look()
                for folder, _, files in os.walk(self._root):
                    for path in (Path(folder), *(Path(folder, name) for name in files)):
                        with contextlib.suppress(FileNotFoundError):  # as below
                            self._force(path)

    def _look(self) -> None:
        self._looking = True
        try:
            self._before()
        finally:
            self._looking = False

    def _force(self, path: Path) -> None:
        found = os.stat(path)
        if found.st_ino not in self._held:
            self._held[found.st_ino] = os.open(path, os.O_RDONLY)
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = _names(path)
        else:
            self._contents[found.st_ino] = path.read_bytes()

    def cut(self, image: Path, rng: random.Random | None = None) -> None:
        """Make a folder with what is left: without `rng`, what was forced; else any part of what was not is there, too."""
        live = {os.lstat(self._root).st_ino: self._root}
        for folder, folders, files in os.walk(self._root):
            for path in (Path(folder, name) for name in (*folders, *files)):
                with contextlib.suppress(FileNotFoundError):  # another thread may go on to where it forces something
                    live[os.lstat(path).st_ino] = path
        self._make(image, os.lstat(self._root).st_ino, live, rng)

    def _make(self, at: Path, inode: int, live: dict[int, Path], rng: random.Random | None) -> None:
        path = live.get(inode)
        if inode in self._names or (path is not None and path.is_dir()):
            at.mkdir()
            kept, now = self._names.get(inode, {}), _names(path) if path is not None else {}
            for name in sorted({*kept, *now}):
                found = kept.get(name) if rng is None else rng.choice([kept.get(name), now.get(name)])
                if found is not None:
                    self._make(at / name, found, live, rng)
            return
        content = self._contents.get(inode, b"")
        if rng is not None and path is not None:
            whole = content
            with contextlib.suppress(FileNotFoundError):
                whole = path.read_bytes()
            content = rng.choice([content, whole, whole[: len(whole) // 2]]) if whole != content else content
        at.write_bytes(content)


def _names(folder: Path) -> Names:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}
