"""Damages an input by a seed, and tells what its reader does that it must not."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator

from tests.fuzz.targets import REFUSED, TARGETS, changed

MOST_S = 1.0


def problems(name: str, seeds: Iterable[int]) -> Iterator[str]:
    """Errors that are none of ours, and readers that take longer than a second."""
    valid, read = TARGETS[name]
    for seed in seeds:
        value = changed(valid, random.Random(f"{name}/{seed}"))
        began = time.process_time()
        try:
            read(value)
        except REFUSED:
            pass
        except Exception as error:
            yield f"seed {seed}: {type(error).__name__}: {error!s:.100}"
        if time.process_time() - began > MOST_S:
            yield f"seed {seed}: took {time.process_time() - began:.1f} s"
