"""Options of ``format("partq")``, parsed and checked at once."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from spark_partq.core.assignors import BUILTIN
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.names import check_name
from spark_partq.core.patterns import check_pattern
from spark_partq.core.stored import MAX_FLOWS, MAX_WEIGHT, MOST
from spark_partq.storage.group import assignors
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store

_STORAGE_PREFIX = "storageoptions."
_STORE_AS_TEXT = re.compile(r"Store\((['\"]).*\1\)")  # the text that Spark makes of a `Store`


def _size(value: Any) -> Any:
    """Bytes, with the suffixes that Spark's settings take (k, m, g)."""
    if isinstance(value, str) and value[-1:].lower() in ("k", "m", "g") and value[:-1].isdigit():
        return int(value[:-1]) << {"k": 10, "m": 20, "g": 30}[value[-1].lower()]
    return value


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


Count = Annotated[int, Field(ge=1, le=MOST)]
Bytes = Annotated[int, BeforeValidator(_size), Field(ge=1, le=MOST)]
Timestamp = Annotated[
    int, Field(ge=0, le=253_402_300_799_999)
]  # the end of the year 9999, after which there are no times
Word = BeforeValidator(_lower)


class Options(BaseModel):
    """The options of a reader. Field names are the option names; the case of letters does not matter.

    See docs/options.md for units and defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = ""
    queue: str = ""
    queuePattern: str | None = None
    group: str | None = None
    flows: Annotated[int, Field(ge=1, le=MAX_FLOWS)] = 1
    instanceId: str | None = None
    assignor: str = "balanced"
    weight: Annotated[float, Field(gt=0, lt=MAX_WEIGHT)] = 1.0
    sessionTimeoutMs: Annotated[int, Field(ge=500, le=86_400_000)] = 10_000
    startingOffsets: str = "earliest"
    endingOffsets: str = "latest"
    startingTimestamp: Timestamp | None = None
    endingTimestamp: Timestamp | None = None
    startingOffsetsByTimestampStrategy: Annotated[Literal["error", "latest"], Word] = "error"
    failOnDataLoss: bool = True
    maxRowsPerTrigger: Count | None = None
    maxBytesPerTrigger: Bytes | None = None
    maxFilesPerTrigger: Count | None = None
    maxUnackedPerFlow: Count | None = None
    maxPollIntervalMs: Annotated[int, Field(ge=1000, le=2_592_000_000)] = 300_000
    maxBarrierWaitMs: Annotated[int, Field(ge=0, le=2_592_000_000)] = 60_000
    ack: Annotated[Literal["batch", "manual"], Word] = "batch"
    storageOptions: Annotated[dict[str, str], Field(repr=False)] = {}  # they may hold secrets

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Read Spark's options.

        Raises
        ------
        InvalidArgumentError
            The error names each unknown or wrong option.
        """
        known = {name.lower(): name for name in cls.model_fields}
        storage: dict[str, str] = {}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name.lower().startswith(_STORAGE_PREFIX):
                storage[name[len(_STORAGE_PREFIX) :]] = value
            else:
                values[known.get(name.lower(), name)] = value
        try:
            options = cls(**{"storageOptions": storage, **values})  # a plain storageOptions is a text, which is refused
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {_reason(e)}" for e in error.errors())
            raise InvalidArgumentError(
                f"options of format partq: {wrong}. Known options: {', '.join(cls.model_fields)}", options=wrong
            ) from None
        options._check_path()
        if options.group is not None:
            check_name("group", options.group)
        if options.instanceId is not None:
            check_name("instance", options.instanceId)
        options._check_queues()
        options._check_assignors()
        return options

    def _check_path(self) -> None:
        if not self.path:
            raise InvalidArgumentError("option 'path' is missing: .option('path', …)", option="path")
        if _STORE_AS_TEXT.fullmatch(self.path):
            raise InvalidArgumentError(
                f"option path={self.path}: an option of Spark is text and cannot be a Store; give .option('path', store.uri), and each "
                "storage option as .option('storageOptions.NAME', …)",
                option="path",
            )

    def _check_queues(self) -> None:
        if self.queuePattern is not None:
            if self.queue:
                raise InvalidArgumentError(
                    "options queue and queuePattern exclude each other; give one", option="queue"
                )
            try:
                check_pattern(self.queuePattern)
            except ValueError as error:
                raise InvalidArgumentError(
                    f"option queuePattern={self.queuePattern!r} is no pattern of queue names: {error}. See docs/options.md",
                    option="queuePattern",
                ) from None
            return
        if not self.queue:
            raise InvalidArgumentError(
                "option 'queue' is missing: .option('queue', …), or queuePattern for all whose names match",
                option="queue",
            )
        if not self.queues or len(set(self.queues)) != len(self.queues):
            raise InvalidArgumentError(f"option queue={self.queue!r} names a queue twice or none", option="queue")
        for name in self.queues:
            check_name("queue", name)

    def _check_assignors(self) -> None:
        if not self.assignors or len(set(self.assignors)) != len(self.assignors):
            raise InvalidArgumentError(
                f"option assignor={self.assignor!r} names an assignor twice or none; known: {', '.join(assignors.known())}",
                option="assignor",
            )
        without_weights = [name for name in self.assignors if not assignors.find(name).weights]
        if self.weight != 1 and without_weights:
            raise InvalidArgumentError(
                f"option weight={self.weight:g}: assignor {without_weights[0]} gives every flow the same share; leave weight out, or use "
                "balanced or weighted",
                option="weight",
            )

    def check_stream(self) -> None:
        """Refuse options that only a batch heeds.

        Raises
        ------
        InvalidArgumentError
        """
        if ending := sorted(self.model_fields_set & {"endingOffsets", "endingTimestamp"}):
            raise InvalidArgumentError(
                f"option {ending[0]}: a stream has no end. Leave it out, or read a batch (spark.read); a query with Trigger.AvailableNow ends "
                "at the messages that are in the queue when it starts",
                option=ending[0],
            )

    @cached_property
    def store(self) -> Store:
        return Store.at(self.path, self.storageOptions)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the option names."""
        return tuple(name.strip() for name in self.queue.split(",") if name.strip())

    @property
    def assignors(self) -> tuple[str, ...]:
        """Assignors that the query supports, best first."""
        names = [name.strip() for name in self.assignor.split(",") if name.strip()]
        return tuple(name.lower() if name.lower() in BUILTIN else name for name in names)

    @cached_property
    def consumer(self) -> ConsumerSettings:
        """The options in the form that the procedures take."""
        return ConsumerSettings(
            self.store,
            self.queues,
            self.queuePattern,
            flows=self.flows,
            instance_id=self.instanceId,
            assignors=self.assignors,
            weight=self.weight,
            session_timeout_ms=self.sessionTimeoutMs,
            starting_offsets=self.startingOffsets,
            starting_timestamp_ms=self.startingTimestamp,
            starting_timestamp_strategy=self.startingOffsetsByTimestampStrategy,
            fail_on_data_loss=self.failOnDataLoss,
            limits=Limits(self.maxRowsPerTrigger, self.maxBytesPerTrigger, self.maxFilesPerTrigger),
            max_unacked_per_flow=self.maxUnackedPerFlow,
            max_poll_interval_ms=self.maxPollIntervalMs,
            manual_acknowledgement=self.ack == "manual",
            max_barrier_wait_ms=self.maxBarrierWaitMs,
        )


def _reason(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such option"
    if error["loc"][0] == "storageOptions":  # it may hold a secret
        return "give each storage option as .option('storageOptions.NAME', …)"
    return f"{error['msg']} (given: {error['input']!r})"


def at(timestamp_ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=timestamp_ms)
