"""A table as of one version: what the entries up to it make up."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_partq.storage.log.entries import Add, Entry, ForeignEntry, Metadata, Remove, Transaction


@dataclass
class Snapshot:
    """Built step by step by `apply`.

    Attributes
    ----------
    version : int
        Of the last entry; -1 before the first.
    files : dict
        The live files, by name.
    transactions : dict
        The last version of each application transaction.
    base : int
        Version of the checkpoint from which it was loaded; -1 without one.
    tombstones : dict or None
        The files that were removed, by name; None where nobody needs them (who writes a checkpoint or deletes files does).
    token : str or None
        Of the last entry, if this package wrote it.
    """

    version: int = -1
    metadata: Metadata | None = None
    files: dict[str, Add] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    tombstones: dict[str, Remove] | None = None
    token: str | None = None
    base: int = -1

    def apply(self, entry: Entry) -> None:
        """Go on to the next version, which the entry is."""
        if self.metadata is None and (entry.metadata is None or not entry.protocol):
            raise ForeignEntry("the table's first entry has no protocol and metadata")
        if entry.metadata is not None:
            if self.metadata is not None and entry.metadata.id != self.metadata.id:
                raise ForeignEntry("it gives the table another id")
            self.metadata = entry.metadata
        for remove in entry.removes:
            self.files.pop(remove.path, None)
            if self.tombstones is not None:
                self.tombstones[remove.path] = remove
        for add in entry.adds:
            self.files[add.path] = add
            if self.tombstones is not None:
                self.tombstones.pop(add.path, None)
        self.transactions.update(entry.transactions)
        self.version += 1
        self.token = entry.token
