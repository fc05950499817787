"""The most memory that this process has had.

Not `ru_maxrss`: a process that is started inherits that of the one that started it.
"""

from __future__ import annotations

import re
from pathlib import Path


def peak_kb() -> int:
    """As the operating system says (VmHWM); Linux only."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise RuntimeError("the operating system does not say how much memory a process has had")
    return int(found[1])
