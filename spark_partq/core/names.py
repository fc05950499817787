"""Names of queues, groups, sinks and instances, which become folder names and transaction ids."""

from __future__ import annotations

import re

from spark_partq.core.errors import InvalidArgumentError

# ASCII alone: two names that look alike are then the same name on every file system and object store. But some file systems ignore case.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?")


def is_name(name: str) -> bool:
    """Whether something of a store can have that name; what else lies there (``lost+found``, ``.snapshot``) is not its own."""
    return _NAME.fullmatch(name) is not None


def check_name(kind: str, name: object) -> str:
    """Return `name` if it can name a `kind` ("queue", "group", …).

    Raises
    ------
    InvalidArgumentError
        If it is not 1 to 128 ASCII letters, digits, '.', '_' or '-', beginning with a letter or digit
        and not ending in a dot.
    """
    if isinstance(name, str) and is_name(name):
        return name
    raise InvalidArgumentError(
        f"{name!r} cannot name {'an' if kind[0] in 'aeiou' else 'a'} {kind}: use 1 to 128 of A-Z a-z 0-9 . _ -, "
        "beginning with a letter or digit and not ending in a dot",
        kind=kind,
        name=name,
    )
