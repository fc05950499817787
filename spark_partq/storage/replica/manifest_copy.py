"""Copies the manifests of a queue: if a partition of the copy has a part of a batch, the copy has the batch's manifest, and the files of the
rest (Q5, S7).

A pass captures what is new in the partitions, then copies the manifests that exist by then, and only then moves the copies on. So a batch of
which a part was captured has its manifest, unless the batch was complete, and the sink further, when the manifests were listed. Of such a batch
the copy may have only a part until the next pass. The copy of stuck messages handles that case (`storage.procedures.missing_stuck`).

Of a sink that keeps positions, the pass also copies the manifests of the batch that was the last one before the partitions were captured. Once
the copies have moved on they have all that these positions count. If the replica takes over, the sink goes on there
(`storage.procedures.promoted_positions`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping

from spark_partq.core.errors import ReplicaError
from spark_partq.core.queue.manifest import MAX_BYTES, Manifest, ManifestName
from spark_partq.core.queue.sink_ids import keeps_positions
from spark_partq.storage.files import FileAlreadyExists, FileInfo, FileMissing, FileTooLarge
from spark_partq.storage.queue.manifests import Manifests, path_of
from spark_partq.storage.replica.copied_files import copy_file, put_same
from spark_partq.storage.store import Store


class ManifestCopy:
    """The manifests of one queue and their copies, in one pass. Made before the partitions are captured.

    Parameters
    ----------
    check_open : function
        Raises if the copy is no longer a copy.
    lacks : function
        Whether the copy lacks the queue's incarnation. Asked at once, and again where it matters, as another pass may bring the incarnation at
        any moment. A primary that is lost may have begun a batch, which its sink has computed again in the replica that took over. Then the copy
        has another manifest of that batch, and no part of the batch in its partitions.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        queue: str,
        queue_id: str,
        check_open: Callable[[], None] = lambda: None,
        lacks: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source, self._target, self._queue = source, target, queue
        self._from, self._to = Manifests(source, queue, queue_id), Manifests(target, queue, queue_id)
        self._check_open, self._lacks, self.lacked = check_open, lacks, lacks()
        # If the source has removed a manifest by now, its batch was complete, and the commits that completed it will be captured.
        self._there = self._to.names()
        here = self._from.names()
        self._gone = {name: info for name, info in self._there.items() if name not in here}
        with_positions: dict[str, dict[ManifestName, FileInfo]] = {}
        for name, info in here.items():
            if keeps_positions(name.sink_id):
                with_positions.setdefault(name.sink_id, {})[name] = info
        last = [copied for sink_id, names in with_positions.items() for copied in self._read_last(sink_id, names)]
        self._last = {manifest.name: (manifest, data) for manifest, data in last}

    def copy(self) -> None:
        """Copy new manifests, each after its files. Called after the partitions were captured.

        If a sink that keeps positions has gone on meanwhile, its manifests are listed again: without its last manifest the sink could not write
        any more.

        Raises
        ------
        ReplicaError
            If the copy has another history.
        """
        if self.lacked:
            self.lacked = self._lacks()  # another pass may have brought the incarnation, and manifests
            if self.lacked:  # before manifests are copied under the same names; the copy is not whole until a pass ends
                self.remove()
            self._there, self._gone = self._to.names(), {}
        for manifest, data in self._last.values():
            self._bring(manifest, data, ())
        names, before = self._from.names(), None
        while names and names != before:
            # Manifests are copied one after the other, by their numbers.
            missed = [name.sink_id for name, info in names.items() if not self._brought(name, info, names)]
            again = set(filter(keeps_positions, missed))
            before = names
            names = {name: info for name, info in self._from.names().items() if name.sink_id in again} if again else {}

    def _read_last(self, sink_id: str, names: Mapping[ManifestName, FileInfo]) -> list[tuple[Manifest, bytes]]:
        """The manifests of a sink's last batch that are not there, in their order."""
        while names:
            last = max(names).batch_id
            new = [name for name, info in names.items() if name.batch_id == last and not self._is_there(name, info)]
            with contextlib.suppress(FileMissing):  # the sink has gone on
                return [self._read(name) for name in new]
            names = self._from.of_sink(sink_id)
        return []

    def _brought(self, name: ManifestName, info: FileInfo, names: Collection[ManifestName]) -> bool:
        """Copy one manifest. Returns False if it is gone, as its sink has gone on.

        A manifest of a batch before the sink's last is not needed: if a late process put it under a name that was in use before, that process is
        refused.
        """
        if name in self._last or self._is_there(name, info):
            return True
        try:
            self._bring(*self._read(name), names)
        except (FileMissing, FileTooLarge):
            return False
        return True

    def _read(self, name: ManifestName) -> tuple[Manifest, bytes]:
        return self._from.read(name), self._from.data(name)

    def _bring(self, manifest: Manifest, data: bytes, names: Collection[ManifestName]) -> None:
        """Put one manifest, after its files. `names` tells which manifests its sink has."""
        name = manifest.name
        try:
            self._bring_files(manifest)
            self._check_open()
            self._to.make_folder()
            lacks = self.lacked and name in self._there and self._lacks()
            if lacks and self._there_is_another(name, data):
                self._to.delete([name])
            put_same(self._target.files, self._to.path(name), data)
        except FileAlreadyExists:
            if not any(other.sink_id == name.sink_id and other.batch_id > name.batch_id for other in names):
                raise self._is_other(name) from None

    def _is_there(self, name: ManifestName, info: FileInfo) -> bool:
        return name in self._there and self._there[name].size == info.size and not self.lacked

    def _there_is_another(self, name: ManifestName, data: bytes) -> bool:
        with contextlib.suppress(FileMissing, FileTooLarge):
            return self._target.files.read(self._to.path(name), MAX_BYTES) != data
        return True

    def _bring_files(self, manifest: Manifest) -> None:
        """Copy the manifest's files as far as they exist. A file that was committed and removed since is not needed."""
        for file in manifest.files:
            path = path_of(self._queue, file)
            found, here = self._target.files.info(path), self._source.files.info(path)
            if here is not None and (found is None or found.size != file.size_bytes):
                with contextlib.suppress(FileMissing):
                    copy_file(self._source, self._target, path, file.size_bytes)

    def remove(self) -> None:
        """Remove manifests that the source had removed before the partitions were captured. Called after the captured steps are applied."""
        self._check_open()
        there = self._to.names() if self._gone else {}  # another pass may have copied one of the same name since
        self._to.delete([name for name, info in self._gone.items() if there.get(name) == info])

    def _is_other(self, name: ManifestName) -> ReplicaError:
        return ReplicaError(
            f"{self._target.uri_of(self._to.path(name))} is another manifest than that of {self._source.uri}: the queue there was "
            "promoted, or written by something else; it is a replica no more",
            queue=self._queue,
            location=self._target.uri,
        )
