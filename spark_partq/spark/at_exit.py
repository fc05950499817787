"""What a process does when it ends."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable


def at_exit(act: Callable[[], object]) -> None:
    """Call `act` when this process ends. A fork of it, which inherits its connections and its `atexit`, may end sooner, and does not."""
    process = os.getpid()

    def end() -> None:
        if os.getpid() == process:
            act()

    atexit.register(end)
