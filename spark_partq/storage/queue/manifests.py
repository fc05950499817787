"""The folder of a queue's manifests: each batch of a sink as it was made durable, before it is placed (Q5).

It is named by the queue's id, so a producer that does not know yet that its queue was deleted and created again leaves the new one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_partq.core.errors import CommitFailedError, CorruptTableError
from spark_partq.core.queue.manifest import (
    MAX_BYTES,
    Manifest,
    ManifestName,
    NewFile,
    Recorded,
    decode,
    encode,
    last_that_holds,
    parse_name,
    prefix_of,
)
from spark_partq.core.queue.sink_ids import keeps_positions, restated_batch
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.files import FileAlreadyExists, FileInfo, FileTooLarge, is_litter
from spark_partq.storage.queue.handle import Queue, last_batches
from spark_partq.storage.store import Store, manifests_folder, partition_folder


class Manifests:
    """The manifests of one queue. Keeps nothing in mind."""

    def __init__(self, store: Store, queue: str, queue_id: str) -> None:
        self._files, self.store, self.queue = store.files, store, queue
        self.folder = manifests_folder(queue, queue_id)

    def make_folder(self) -> None:
        self._files.make_folder(self.folder)

    def path(self, name: ManifestName) -> str:
        return f"{self.folder}/{name.file}"

    def names(self, now_ms: int | None = None) -> dict[ManifestName, FileInfo]:
        """All, sorted. With the time by the store's clock, delete what processes that died were writing."""
        found = self._files.list_files(self.folder)
        named = self._named(found)
        # On a disk a process that dies may leave a manifest under two names. To delete one changes the time from which it has had the other.
        twice = {(info.size, info.modified_ns) for info in named.values()}
        for info in found:
            if now_ms is not None and is_litter(info, now_ms) and (info.size, info.modified_ns) not in twice:
                self._files.delete(f"{self.folder}/{info.name}")
        return named

    def of_sink(self, sink_id: str) -> dict[ManifestName, FileInfo]:
        """Those of a sink, sorted."""
        found = self._named(self._files.list_files(self.folder, after=sink_id, prefix=prefix_of(sink_id)))
        mine = {name: info for name, info in found.items() if name.sink_id == sink_id}
        if mine:  # whoever put the last one may not have forced it yet
            self._files.force(self.folder)
        return mine

    def _named(self, files: Iterable[FileInfo]) -> dict[ManifestName, FileInfo]:
        found = {name: info for info in files if (name := parse_name(info.name)) is not None}
        return dict(sorted(found.items()))

    def has_file(self, file: NewFile) -> bool:
        """Whether a file that a manifest names is there."""
        return self._files.info(path_of(self.queue, file)) is not None

    def data(self, name: ManifestName) -> bytes:
        """Its bytes; raises `FileMissing` or `FileTooLarge`."""
        return self._files.read(self.path(name), MAX_BYTES)

    def read(self, name: ManifestName) -> Manifest:
        """What it says.

        Raises
        ------
        FileMissing
        CorruptTableError, NewerStoreError
            If it is damaged, or only a newer program may go on with it.
        """
        try:
            return decode(name, self.data(name))
        except (FileTooLarge, *MALFORMED) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else error
            raise CorruptTableError(
                f"manifest {self.store.uri_of(self.path(name))} of queue {self.queue!r} is damaged: {why}. Batch {name.batch_id} of sink "
                f"{name.sink_id!r} cannot be finished without it; restore it from a backup",
                queue=self.queue,
                sink_id=name.sink_id,
                batch_id=name.batch_id,
                path=self.path(name),
            ) from error

    def put(self, manifest: Manifest) -> bool:
        """Put it unless there is one of that name; was it put?

        Raises
        ------
        FileMissing
            If the folder is gone.
        CommitFailedError
            If the batch has too many files.
        """
        name = manifest.name
        try:
            self._files.put_if_absent(self.path(name), encode(manifest))
        except FileAlreadyExists:
            return False
        except ValueError as error:
            raise CommitFailedError(
                f"batch {name.batch_id} of sink {name.sink_id!r} cannot be written to queue {self.queue!r}: {error}. Nothing of it is in; "
                "make the batches smaller",
                queue=self.queue,
                sink_id=name.sink_id,
                batch_id=name.batch_id,
            ) from error
        return True

    def delete(self, names: Iterable[ManifestName]) -> None:
        for name in names:
            self._files.delete(self.path(name))


def path_of(queue: str, file: NewFile) -> str:
    """Where a file lies that a manifest of the queue names."""
    return f"{partition_folder(queue, file.partition)}/{file.path}"


def last_to_go_on_with(
    queue: Queue, manifests: Iterable[Manifest], infos: Mapping[ManifestName, FileInfo], recorded: Recorded
) -> Manifest | None:
    """Of a batch's manifests, in order, the last that holds and is not void."""
    left = [manifest for manifest in manifests if not is_void(queue, manifest, infos[manifest.name], recorded)]
    return last_that_holds(left, queue.state.generations, recorded)


def has_valid_positions(queue: Queue, manifest: Manifest) -> bool:
    """Whether the positions in a manifest are valid here. Those of a sink that keeps none always are.

    A promotion puts a manifest above all of the primary for each sink that keeps positions and that the replica knows
    (`storage.procedures.promoted_positions`). A pass that slept may put the first manifest of another such sink later, and its positions may
    count messages that the queue lacks.
    """
    if not keeps_positions(manifest.name.sink_id) or not is_of_primary(queue, manifest.name):
        return True
    return manifest.earlier_are_in(last_batches(queue.every_table(), manifest.name.sink_id))


def is_of_primary(queue: Queue, name: ManifestName) -> bool:
    """Whether a batch of a sink that keeps positions was written before the queue's last promotion."""
    return name.batch_id < restated_batch(len(queue.state.former))


def is_void(queue: Queue, manifest: Manifest, info: FileInfo, recorded: Recorded) -> bool:
    """Whether nothing of it is in, and it was put so late that maintenance has deleted a file of it, which nothing named, or may be about to.

    By the store's times everybody gets the same answer, so nobody commits a file of a manifest that is late. (On a disk they change if somebody
    changes the manifest's inode.)
    """

    def info_of(file: NewFile) -> FileInfo | None:
        return queue.store.files.info(path_of(queue.name, file))

    if recorded.get(manifest.generation):
        return False
    files = queue.store.map(info_of, manifest.files)
    return not all(file is not None and manifest.is_in_time(file.modified_ns, info.named_ns) for file in files)
