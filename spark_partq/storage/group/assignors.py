"""Assignors by name: the built-in ones and those of installed packages.

A package offers one by an entry point of the group `GROUP`: an object as `core.assignors.UserAssignor` describes it, or a class that
makes one without arguments. A built-in name always means the built-in assignor.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from spark_partq.core.assignors import BUILTIN, Assignor, PlugIn
from spark_partq.core.errors import AssignorError, UnknownAssignorError

GROUP = "spark_partq.assignors"


def known() -> list[str]:
    """Names of all assignors: the built-in ones, then those of packages."""
    return [*BUILTIN, *sorted({entry.name for entry in entry_points(group=GROUP)} - set(BUILTIN))]


def find(name: str) -> Assignor:
    """The assignor of that name.

    Raises
    ------
    UnknownAssignorError
        There is none, neither built in nor in an installed package.
    AssignorError
        A package offers it, but it cannot be loaded or is not what an assignor must be.
    """
    if name in BUILTIN:
        return BUILTIN[name]
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise UnknownAssignorError(
            f"there is no assignor {name!r}; there are {', '.join(known())}, and packages add theirs with an entry point of "
            f"the group {GROUP!r}",
            assignor=name,
        )
    return PlugIn(_loaded(found))


def _loaded(entry: EntryPoint) -> Any:
    try:
        loaded = entry.load()
        assignor = loaded() if isinstance(loaded, type) else loaded
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # a package may end the process, too
        raise AssignorError(
            f"assignor {entry.name!r} cannot be loaded from {entry.value!r}: {type(e).__name__}: {e}; mend or remove the "
            "package that offers it",
            assignor=entry.name,
        ) from e
    lacking = [part for part in ("name", "cooperative", "assign") if not hasattr(assignor, part)]
    if lacking:
        raise AssignorError(
            f"assignor {entry.name!r} from {entry.value!r} has no {' and no '.join(lacking)}; see docs/assignors.md",
            assignor=entry.name,
        )
    if assignor.name != entry.name:
        raise AssignorError(
            f"assignor {entry.name!r} from {entry.value!r} calls itself {assignor.name!r}; give both the same name",
            assignor=entry.name,
        )
    return assignor
