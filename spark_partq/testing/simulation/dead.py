"""Messages that kill whoever is given them, and the dead-message queue where they end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

from spark_partq.core.group.facts import GroupFact
from spark_partq.storage.files import Files
from spark_partq.storage.log.entries import decode
from spark_partq.testing.simulation.stored import rows_of

QUEUE = "dead"

_LOG = re.compile(r"(queues/dead/partitions/partition=-?\d+)/_delta_log/\d{20}\.json")


def kills(id_: str, percent: int) -> bool:
    """Whether a message is one of so many of a hundred that kill."""
    return crc32(f"poison {id_}".encode()) % 100 < percent


@dataclass
class DeadMessages:
    """What is in the dead-message queue, by group."""

    written: dict[str, set[str]] = field(default_factory=dict)

    def changed(self, files: Files, path: str, data: bytes) -> str:
        """A file has appeared in that queue; what is wrong, or nothing."""
        match = _LOG.fullmatch(path)
        if match is None:
            return ""
        for add in decode(data).adds:
            for row in rows_of(files, f"{match[1]}/{add.path}"):
                known = self.written.setdefault(row["origin_group"], set())
                if row["id"] in known:
                    return f"DEAD TWICE: {row['id']} of group {row['origin_group']} was there before"
                known.add(row["id"])
        return ""

    def lacks(self, group: str, ids: Sequence[str], skipped: GroupFact) -> str:
        """A group leaves out messages, as a fact says; what is wrong, or nothing."""
        if not json.loads(skipped.body or "{}")["dead_letter_queue"]:
            return ""
        missing = [id_ for id_ in ids if id_ not in self.of(group)]
        return f"DEAD LOST: group {group} leaves out {', '.join(missing)}" if missing else ""

    def of(self, group: str) -> set[str]:
        return self.written.get(group, set())
