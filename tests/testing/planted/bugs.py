"""What a planted bug is: a function of the product that is replaced, and how that is caught."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from typing import Any
from unittest import mock

from spark_partq.testing.simulation.setup import Setup

BUGS: dict[str, Bug] = {}
# For what a bug does now so and now so. It begins anew whenever a bug is planted, so that a run is the same each time.
CHANCE = random.Random(0)


@dataclass
class Bug:
    """A bug that can be planted.

    Attributes
    ----------
    what : str
        What is wrong then, in a sentence.
    replacements : list
        Names of functions, as `replaced` takes them, each with what takes its place.
    matters : function
        Whether it can show in a run of this setup; the others are not tried.
    change : function
        Makes the setup in which it is hunted from the one that is drawn from a seed.
    test : function or None
        A test that fails while the bug is planted: for what no run can show.
    """

    name: str
    what: str
    replacements: list[tuple[str, Callable[..., Any]]]
    matters: Callable[[Setup], bool]
    change: Callable[[Setup], Setup]
    test: Callable[[], object] | None
    subject: str = field(default="")

    @contextmanager
    def planted(self) -> Iterator[None]:
        CHANCE.seed(0)
        with ExitStack() as stack:
            for target, replacement in self.replacements:
                stack.enter_context(replaced(target, replacement))
            yield

    def also(self, target: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The bug replaces this function, too."""

        def add(replacement: Callable[..., Any]) -> Callable[..., Any]:
            self.replacements.append((target, replacement))
            return replacement

        return add


def bug(
    target: str,
    matters: Callable[[Setup], bool] = lambda _: True,
    change: Callable[[Setup], Setup] = lambda setup: setup,
    test: Callable[[], object] | None = None,
) -> Callable[[Callable[..., Any]], Bug]:
    """The decorated function takes the place of `target`. It is given the original first; its docstring says what is wrong."""

    def add(replacement: Callable[..., Any]) -> Bug:
        found = Bug(
            replacement.__name__,
            (replacement.__doc__ or "").strip(),
            [(target, replacement)],
            matters,
            change,
            test,
            replacement.__module__.rpartition(".")[2],
        )
        if not found.what or found.name in BUGS:
            raise ValueError(f"{found.name} has no sentence, or is planted twice")
        BUGS[found.name] = found
        return found

    return add


@contextmanager
def replaced(target: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of the product.

    Parameters
    ----------
    target : str
        ``core.group.steps.handoff:drained``, or ``core.group.acks:Acks.offset``. A function is replaced wherever it was imported; named
        by a module that has imported it, only there.
    """
    module_name, _, path = target.partition(":")
    module = import_module(f"spark_partq.{module_name}")
    *classes, name = path.split(".")
    owner: Any = module
    for part in classes:
        owner = getattr(owner, part)
    original = vars(owner)[name]
    if isinstance(original, property):
        getter = original.fget
        new: Any = property(lambda self: replacement(getter, self))
    else:

        @wraps(original)
        def new(*arguments: Any, **named: Any) -> Any:
            return replacement(original, *arguments, **named)

    owners = [owner]
    if not classes and original.__module__ == module.__name__:
        owners = [found for found in _modules() if vars(found).get(name) is original]
    with ExitStack() as stack:
        for found in owners:
            stack.enter_context(mock.patch.object(found, name, new))
        yield


def _modules() -> list[Any]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in ("spark_partq", "tests") and hasattr(module, "__dict__")
    ]
