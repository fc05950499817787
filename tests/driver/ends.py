"""What the tests of the local socket share: a driver of their own, and the two ends of a connection to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.spark.driver import Driver
from spark_partq.spark.spark_events import SparkEvents

GREETING = {"group": "g", "instance": "i", "store": "/store"}


class Handler:
    """Writes down what a planner is told."""

    def __init__(self) -> None:
        self.finished: list[StreamOffset] = []
        self.terminated = False

    def batch_finished(self, offset: StreamOffset, stateful: bool = False) -> None:
        self.finished.append(offset)

    def query_terminated(self) -> None:
        self.terminated = True


@contextmanager
def own_driver(folder: Any) -> Iterator[Driver]:
    """A driver whose folder for temporary files is this one, and which has no Spark to listen to."""
    with (
        mock.patch.object(tempfile, "tempdir", str(folder)),
        mock.patch.object(SparkEvents, "listen", return_value=None),
    ):
        driver = Driver()
        yield driver
        if driver.address is not None:
            driver.address.remove()
