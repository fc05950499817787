"""Write the table of rights in SECURITY.md, from the rights that the tests give each role."""

from __future__ import annotations

import re
from pathlib import Path

from tests.security.rights import table

PAGE = Path(__file__).parents[1] / "SECURITY.md"


def main() -> None:
    text = PAGE.read_text()
    PAGE.write_text(re.sub(r"^\| role \|.*?\n(?=\n)", lambda _: table(), text, flags=re.MULTILINE | re.DOTALL))


if __name__ == "__main__":
    main()
