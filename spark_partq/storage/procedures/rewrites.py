"""Files that became too old before they were durable are written again, but not again and again."""

from __future__ import annotations

import logging

from spark_partq.core.errors import CommitFailedError
from spark_partq.storage.queue.file_age import FileAge
from spark_partq.storage.queue.handle import Queue

# What an error says if a batch may be in partly.
NOT_LOST = (
    "Nothing of its batch is lost: the query writes the rest when it is started again. Of a single append some rows may be in: look which, "
    "before you repeat it"
)
# How often they are written again.
MAX_REWRITES = 3

_log = logging.getLogger("spark_partq")


def check_rewrites(queue: Queue, rewrites: int, age: FileAge | None) -> None:
    """Files became too old before they were durable. They are written again, but the number of times is limited: then this raises."""
    took_s = 0.0 if age is None else queue.store.runtime.monotonic_s() - age.began_s
    grace_s = queue.state.settings.vacuum_grace_ms / 1000
    what = (
        f"writing a batch to queue {queue.name!r} took {took_s:.0f} s by this machine's clock, or the machine stood still. Files that nothing "
        f"names may be deleted after vacuum_grace_ms={queue.state.settings.vacuum_grace_ms}, so its files must be durable within half of that, {grace_s / 2:.0f} s"
    )
    if rewrites > MAX_REWRITES:
        raise CommitFailedError(
            f"{what}; the files were written {rewrites} times. {NOT_LOST}. "
            "Make the batches smaller, or use a queue with a longer vacuum_grace_ms",
            queue=queue.name,
            vacuum_grace_ms=queue.state.settings.vacuum_grace_ms,
            took_s=round(took_s),
        )
    _log.warning("%s; the files are written again (%s of %s times)", what, rewrites, MAX_REWRITES)
