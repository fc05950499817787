"""What is done to the machine under the processes: a small disk, folders that nobody may write."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_SMALL = "64m"


def without_roots_rights() -> Sequence[str]:
    """What starts a process so that the modes of folders bind it, as they bind any user's."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return ()
    return ("setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner")


def why_no_read_only() -> str:
    return "" if os.geteuid() != 0 or without_roots_rights() else "root may write everywhere, and there is no setpriv"


# ---- a small disk
def mount_small(folder: Path) -> str:
    """Let a folder be a disk of its own; why that cannot be done, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return "only root may mount a small disk"
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SMALL}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def unmount_small(folder: Path, keep: bool) -> None:
    """Take the disk away; what is on it stays in the folder, if it is to be kept."""
    kept = folder.with_name(f"{folder.name}.kept")
    if keep:
        shutil.copytree(folder, kept)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    if keep:
        folder.rmdir()
        kept.rename(folder)


def fill(folder: Path) -> Path:
    """Fill the disk of a folder to the last byte; who deletes the returned file empties it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


# ---- rights
def forbid(folder: Path) -> list[tuple[Path, int]]:
    """Nobody may write into a folder or one below it; returns the modes of before."""
    found = [(path, path.stat().st_mode) for path in [folder, *folder.rglob("*")] if path.is_dir()]
    for path, mode in found:
        path.chmod(mode & ~0o222)
    return found


def allow(modes: Sequence[tuple[Path, int]]) -> None:
    for path, mode in modes:
        path.chmod(mode)
