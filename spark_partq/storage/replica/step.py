"""One step of a table's copy: a file for its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_partq.storage.log.entries import Transaction


@dataclass(frozen=True)
class Step:
    """One file to put into the copy's log. The data files that it names are in the copy already.

    Attributes
    ----------
    token : str or None
        The token of that version's entry.
    cleaned : bool
        The table was vacuumed.
    recorded : dict
        Application transactions that the file sets, each with its version.
    """

    version: int
    data: bytes
    token: str | None = None
    jump: bool = False
    cleaned: bool = False
    recorded: Mapping[str, int] = field(default_factory=dict)


def recorded_versions(transactions: Mapping[str, Transaction]) -> dict[str, int]:
    return {app: transaction.version for app, transaction in transactions.items()}
