"""Tests that need a store, as tests of planted bugs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_a_store(test: Callable[..., object], *arguments: Any) -> None:
    """Run a test with a store that does not exist yet."""
    with tempfile.TemporaryDirectory() as folder:
        test(str(Path(folder) / "store"), *arguments)
