"""What a simulated world keeps going, and how that fared."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from spark_partq.core.errors import PartqError
from spark_partq.testing.simulation.stored import Violation


@dataclass
class Job:
    """Something that is supervised."""

    name: str
    is_done: Callable[[], bool]
    required: bool
    starts: int = 0
    running: bool = False
    last_error: str = ""
    unexpected: str = ""
    expected: tuple[type[BaseException], ...] = ()
    errors: list[str] = field(default_factory=list)

    def failed(self, error: BaseException) -> None:
        self.last_error = f"{type(error).__name__}: {error}"
        if not isinstance(error, (PartqError, Violation, *self.expected)):
            trace = "".join(traceback.format_exception(error)[-4:])
            self.unexpected = f"ERROR: {self.name}: {self.last_error}\n{trace}"
