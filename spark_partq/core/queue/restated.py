"""By which manifest a sink that keeps positions goes on in a replica that takes over (S7, H4).

A copy may have the manifest of a sink's last batch, and lack messages of the batches before it, which the manifest's positions count: the
primary was lost in the middle of a pass, or the sink went on while a pass read the partitions. These messages are not lost as long as the
positions do not count them: they come again from where they came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from spark_partq.core.queue.manifest import Manifest, ManifestName, NewFile


def restated(
    manifests: Sequence[Manifest],
    last: Mapping[int, int],
    has_part: Callable[[ManifestName, int, int], bool],
    has_file: Callable[[NewFile], bool],
    last_discarded: int,
    name: ManifestName,
) -> Manifest:
    """The manifest by which the sink goes on: its positions count only messages that the copy has, in its partitions or in files of this manifest.

    Parameters
    ----------
    manifests : sequence of Manifest
        Those of the sink that the copy has, at least one. The last one that is whole is taken.
    last : dict
        For each partition that records the sink, its last batch.
    has_part : function
        Whether a partition records a manifest's batch, placed by a generation of the map.
    has_file : function
        Whether the copy has a file that a manifest names.
    last_discarded : int
        The sink's last batch whose discarded messages the copy counts; -1 if there is none.
    name : ManifestName
        The new manifest's name, above all that the primary can have used.
    """

    def is_in(manifest: Manifest, partition: int, generation: int) -> bool:
        return last.get(partition, -1) > manifest.name.batch_id or has_part(manifest.name, partition, generation)

    def is_left(manifest: Manifest, file: NewFile) -> bool:
        return not is_in(manifest, file.partition, manifest.generation)

    def is_whole(manifest: Manifest) -> bool:
        return (
            manifest.earlier_are_in(last)
            and all(is_in(manifest, p, g) for g, partitions in manifest.placed.items() for p in partitions)
            and all(has_file(file) for file in manifest.files if is_left(manifest, file))
        )

    found = next((manifest for manifest in reversed(manifests) if is_whole(manifest)), None)
    if found is None:  # nothing that the sink has written is sure to be here
        newest = manifests[-1]
        found = replace(newest, files=(), discarded=None, positions=dict.fromkeys(newest.positions, 0))
    left = tuple(file for file in found.files if is_left(found, file))
    discarded = None if found.name.batch_id <= last_discarded else found.discarded
    return replace(found, name=name, files=left, placed={}, discarded=discarded, late_after_ms=None, follows=dict(last))
