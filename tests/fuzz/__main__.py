"""Many inputs: ``python -m tests.fuzz --inputs 1000000``. Prints what is wrong, with its seed; the exit code is 1 then."""

from __future__ import annotations

import sys

from tests.fuzz.run import main
from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    sys.exit(main(TARGETS))
