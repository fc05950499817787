"""Which positions of a sink count in a replica that takes over (S7, H4).

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
    is_left: Callable[[Manifest, NewFile], bool],
    name: ManifestName,
) -> Manifest | None:
    """The manifest by which the sink goes on; None if it goes on by the last one of the copy.

    Parameters
    ----------
    manifests : sequence of Manifest
        All that the copy has of the sink, one of each batch, in their order. The sink keeps positions.
    last : dict
        For each partition that records the sink, its last batch.
    is_left : function
        Whether the copy has a file of that manifest's batch, and its partition does not.
    name : ManifestName
        The new manifest's name, above all that the primary can have used.
    """
    newest = manifests[-1]
    if _is_counted(newest, last) and max(last.values(), default=-1) <= newest.name.batch_id:
        return None
    counted = next((manifest for manifest in reversed(manifests) if _is_counted(manifest, last)), None)
    if counted is None:  # the copy has no message that is sure to be counted
        nothing = dict.fromkeys(newest.positions, 0)
        counted = replace(newest, files=(), positions=nothing)
    left = tuple(file for file in counted.files if is_left(counted, file))
    return replace(counted, name=name, files=left, placed={}, discarded=None, late_after_ms=None, follows=dict(last))


def _is_counted(manifest: Manifest, last: Mapping[int, int]) -> bool:
    """Whether the copy has what the manifest's positions count, or the rest of it in the manifest's own files."""
    return all(last.get(partition, -1) >= batch for partition, batch in (manifest.follows or {}).items())
