"""The rights of each role: what the tests give it, and the table in SECURITY.md, which ``python -m tools.rights`` writes."""

from __future__ import annotations

from dataclasses import dataclass

Q, G = "queues/<queue>", "groups/<group>"


@dataclass(frozen=True)
class Rights:
    """The folders of a role that it reads, writes and deletes from, in one store.

    Attributes
    ----------
    store : str
        ``primary`` or ``replica`` for a role that works in both; else "".
    not_always : tuple of str
        Of `writes`, those that it needs only now and then; SECURITY.md says when.
    """

    role: str
    store: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    not_always: tuple[str, ...] = ()

    def of(self, action: str, queue: str = "q", group: str = "g") -> tuple[str, ...]:
        """The folders of `reads`, `writes` or `deletes`, for these names."""
        return tuple(f.replace("<queue>", queue).replace("<group>", group) for f in getattr(self, action))


RIGHTS = (
    Rights("producer", "", (Q,), (f"{Q}/partitions", f"{Q}/manifests"), (f"{Q}/manifests",)),
    Rights("consumer", "", (Q, G), (G, f"{Q}/control"), not_always=(f"{Q}/control",)),
    Rights("reader", "", (Q, "groups")),
    Rights("maintainer", "", (Q, "groups"), (Q, "groups"), (Q, "groups")),
    Rights("scaler", "", (Q, "groups"), (Q, "groups"), (Q,)),
    Rights("administrator", "", ("queues", "groups"), ("queues", "groups"), ("queues", "groups")),
    Rights("replicator", "primary", (Q, "groups"), (f"{Q}/control",)),
    Rights("replicator", "replica", ("queues", "groups"), ("queues", "groups"), ("queues", "groups")),
    Rights("promoter", "primary", (Q, "groups"), (Q,)),
    Rights("promoter", "replica", (Q, "groups"), (Q, "groups"), (Q, "groups")),
)
ACTIONS = ("reads", "writes", "deletes")


def table() -> str:
    """As it stands in SECURITY.md."""
    lines = ["| role | reads | writes | deletes |", "|---|---|---|---|"]
    for rights in RIGHTS:
        where = f", in the {rights.store}'s store" if rights.store else ""
        folders = [", ".join(f"`{folder}`" for folder in getattr(rights, action)) for action in ACTIONS]
        lines.append("|".join(["", f" {rights.role}{where} ", *(f" {cell} " if cell else " " for cell in folders), ""]))
    return "".join(f"{line}\n" for line in lines)
