"""The command ``spark-partq``.

Exit codes: 0 done, 1 the request was refused (one line on stderr), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import logging
import sys

import spark_partq as partq

# In the order of `--help`:
# isort: off
from spark_partq.cli import (
    queues,
    tail,
    altering,
    deleting,
    scaling,
    replicas,
    groups,
    history,
    monitoring,
    console,
    dead_letters,
    stores,
)

# isort: on
from spark_partq.cli.common import app
from spark_partq.cli.output import say
from spark_partq.cli.settings import duration_ms

__all__ = [
    "altering",
    "app",
    "console",
    "dead_letters",
    "deleting",
    "duration_ms",
    "groups",
    "history",
    "main",
    "monitoring",
    "queues",
    "replicas",
    "scaling",
    "stores",
    "tail",
]


class _Warnings(logging.Handler):
    """What the library logs may name what a store says; it is printed as all the rest is."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), error=True)


def main() -> None:
    """Entry point of the command."""
    logger, warnings = logging.getLogger("spark_partq"), _Warnings(logging.WARNING)
    logger.addHandler(warnings)
    try:
        app()
    except partq.PartqError as error:
        say(f"error: {error}", error=True)
        sys.exit(1)
    except BrokenPipeError:  # `spark-partq list | head -1`
        sys.stderr.close()
        sys.exit(0)
    finally:
        logger.removeHandler(warnings)
