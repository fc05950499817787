"""All rows, by the headings under which docs/errors.md shows them."""

from __future__ import annotations

from tests.refused import arguments, commands, micro_batches, places, readers, stored, writers
from tests.refused.case import Case

SECTIONS: dict[str, list[Case]] = {
    **arguments.CASES,
    **readers.CASES,
    **writers.CASES,
    **micro_batches.CASES,
    **commands.CASES,
    **stored.CASES,
    **places.CASES,
}
EVERY = [case for cases in SECTIONS.values() for case in cases]
