"""One row: what is given, what was done to the store before, and the error that comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_partq.core.errors import PartqError

Prepare = Callable[[Any], object]


@dataclass(frozen=True)
class Case:
    """
    Attributes
    ----------
    given : str
        Python of `World.names`, or the arguments of the command ``spark-partq`` if `by_command`.
    error : class or None
        None: the command says that it is used wrongly, with exit code 2.
    begins : str
        How the message begins, without the class. STORE stands for the store's path, THERE for that of another one, FOLDER for the folder
        of both, FILE for a Parquet file. Of wrong usage: what the command says somewhere.
    prepare : function, optional
        Done to the world before; its docstring says what.
    limit : str
        "" or a limit of the process that does it: see `limited`.
    begun : bool
        What was begun stays, and goes on when it is done again. All other rows change nothing.
    """

    given: str
    error: type[PartqError] | None
    begins: str
    prepare: Prepare | None = None
    by_command: bool = False
    limit: str = ""
    begun: bool = False

    @property
    def prepare_name(self) -> str:
        return "" if self.prepare is None else getattr(self.prepare, "__name__", "")

    @property
    def before(self) -> str:
        """What was done before, in words."""
        said = [] if self.prepare is None else [" ".join((self.prepare.__doc__ or "").split()).rstrip(".")]
        return "; ".join([*said, self.limit] if self.limit else said)


def python(
    given: str,
    error: type[PartqError],
    begins: str,
    prepare: Prepare | None = None,
    limit: str = "",
    begun: bool = False,
) -> Case:
    return Case(given, error, begins, prepare, limit=limit, begun=begun)


def command(given: str, error: type[PartqError] | None, begins: str, prepare: Prepare | None = None) -> Case:
    return Case(given, error, begins, prepare, by_command=True)
