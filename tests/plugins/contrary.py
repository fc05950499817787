"""An assignor as a user's package would offer it: everything to the last member, until a file tells it to do wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any


class Contrary:
    name = "contrary"
    cooperative = True

    def assign(
        self, members: Sequence[Any], partition_counts: Mapping[str, int], previous: Mapping[str, Any]
    ) -> dict[str, list[tuple[str, int]]]:
        every = [(queue, p) for queue, count in sorted(partition_counts.items()) for p in range(count)]
        last = max(member.id for member in members)
        if os.path.exists(os.environ["CONTRARY_TWICE"]):
            every.append(every[0])
        return {last: every}
