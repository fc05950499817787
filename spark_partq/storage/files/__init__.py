"""The files of a store: on a disk, in an object store, or in memory.

Nothing else in `storage` knows where a store lies. The package is the only one that imports obstore.
"""

from __future__ import annotations

from spark_partq.storage.files.memory import MemoryFiles
from spark_partq.storage.files.opening import open_files
from spark_partq.storage.files.port import (
    FileAlreadyExists,
    FileInfo,
    FileMissing,
    Files,
    FileTooLarge,
    Output,
    is_litter,
    is_temporary,
)

__all__ = [
    "FileAlreadyExists",
    "FileInfo",
    "FileMissing",
    "FileTooLarge",
    "Files",
    "MemoryFiles",
    "Output",
    "is_litter",
    "is_temporary",
    "open_files",
]
