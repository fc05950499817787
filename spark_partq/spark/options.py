"""Options of ``format("partq")``, parsed and checked at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from spark_partq.core.admission import Limits
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.names import check_name
from spark_partq.storage.store import Store

ASSIGNORS = ("balanced",)
_STORAGE_PREFIX = "storageoptions."


def _size(value: Any) -> Any:
    """Bytes, with the suffixes that Spark's settings take (k, m, g)."""
    if isinstance(value, str) and value[-1:].lower() in ("k", "m", "g") and value[:-1].isdigit():
        return int(value[:-1]) << {"k": 10, "m": 20, "g": 30}[value[-1].lower()]
    return value


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, BeforeValidator(_size), Field(ge=1)]
Word = BeforeValidator(_lower)


class Options(BaseModel):
    """What a reader was asked for. Field names are the option names; those are matched whatever their case.

    See docs/options.md for units and defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = ""
    queue: str = ""
    group: str | None = None
    flows: Annotated[int, Field(ge=1, le=10_000)] = 1
    instanceId: str | None = None
    assignor: str = "balanced"
    sessionTimeoutMs: Annotated[int, Field(ge=500)] = 10_000
    startingOffsets: str = "earliest"
    endingOffsets: str = "latest"
    startingTimestamp: Annotated[int, Field(ge=0)] | None = None
    endingTimestamp: Annotated[int, Field(ge=0)] | None = None
    startingOffsetsByTimestampStrategy: Annotated[Literal["error", "latest"], Word] = "error"
    failOnDataLoss: bool = True
    maxRowsPerTrigger: Count | None = None
    maxBytesPerTrigger: Bytes | None = None
    maxFilesPerTrigger: Count | None = None
    maxUnackedPerFlow: Count | None = None
    maxPollIntervalMs: Annotated[int, Field(ge=1000)] = 300_000
    ack: Annotated[Literal["batch", "manual"], Word] = "batch"
    storageOptions: dict[str, str] = {}

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Read Spark's options.

        Raises
        ------
        InvalidArgumentError
            Naming each unknown or wrong option.
        """
        known = {name.lower(): name for name in cls.model_fields}
        values: dict[str, Any] = {"storageOptions": {}}
        for name, value in given.items():
            if name.lower().startswith(_STORAGE_PREFIX):
                values["storageOptions"][name[len(_STORAGE_PREFIX) :]] = value
            else:
                values[known.get(name.lower(), name)] = value
        try:
            options = cls(**values)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {_reason(e)}" for e in error.errors())
            raise InvalidArgumentError(
                f"options of format partq: {wrong}. Known options: {', '.join(cls.model_fields)}", options=wrong
            ) from None
        for required in ("path", "queue"):
            if not getattr(options, required):
                raise InvalidArgumentError(f"option {required!r} is missing: .option({required!r}, …)", option=required)
        if options.group is not None:
            check_name("group", options.group)
        if options.instanceId is not None:
            check_name("instance", options.instanceId)
        if not options.queues or len(set(options.queues)) != len(options.queues):
            raise InvalidArgumentError(f"option queue={options.queue!r} names a queue twice or none", option="queue")
        for name in options.queues:
            check_name("queue", name)
        unknown = [name for name in options.assignors if name not in ASSIGNORS]
        if unknown or not options.assignors:
            raise InvalidArgumentError(
                f"option assignor={options.assignor!r}: there is no assignor {', '.join(unknown)!r}; "
                f"known: {', '.join(ASSIGNORS)}",
                option="assignor",
            )
        return options

    @property
    def store(self) -> Store:
        return Store.at(self.path, self.storageOptions)

    @property
    def queues(self) -> list[str]:
        return [name.strip() for name in self.queue.split(",") if name.strip()]

    @property
    def assignors(self) -> tuple[str, ...]:
        """Assignors that the query can take part in, best first."""
        return tuple(name.strip().lower() for name in self.assignor.split(",") if name.strip())

    @property
    def limits(self) -> Limits:
        return Limits(self.maxRowsPerTrigger, self.maxBytesPerTrigger, self.maxFilesPerTrigger)


def _reason(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such option"
    return f"{error['msg']} (given: {error['input']!r})"


def at(timestamp_ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=timestamp_ms)
