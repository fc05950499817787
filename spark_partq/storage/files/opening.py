"""Files by the URI of a store."""

from __future__ import annotations

from collections.abc import Mapping

from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.files.port import Files


def open_files(uri: str, options: Mapping[str, str]) -> Files:
    """The files below an absolute path or an object store's URI.

    Raises
    ------
    StoreUnavailableError
        If the URI or the options cannot be right; nothing is asked of the store yet.
    """
    if uri.startswith("/"):
        return DiskFiles(uri)
    from spark_partq.storage.files.objects import ObjectFiles  # costs 0.03 s, and most stores lie on a disk

    return ObjectFiles(uri, options)
