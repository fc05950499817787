"""Settings of a queue: what can be set, its unit, its bounds and its default."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from spark_partq.core import format
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.names import is_name
from spark_partq.core.payload.schema import Struct
from spark_partq.core.stored import MAX_MS, MAX_PARTITIONS, MOST

# Maintenance deletes files that nothing has named for whole hours, and a writer has half of the grace to commit its files.
# With a shorter grace, after a slow write, or with two machines whose clocks differ a little, confirmed messages would be
# lost, or the files be written again for ever.
MIN_VACUUM_GRACE_MS = 3_600_000

# A removed file is deleted after the grace. With the shortest grace, half an hour is left when a write has used its half.
# Two machines whose clocks are wrong by ten minutes, one ahead and one behind, stay within that. A machine that uses a time
# server is wrong by milliseconds.
MIN_CLOCK_SKEW_MS = 60_000

INTEGERS = ("byte", "short", "integer", "long")

Millis = Annotated[int, Field(ge=0, le=MAX_MS)]
SkewMillis = Annotated[int, Field(ge=MIN_CLOCK_SKEW_MS, le=MAX_MS)]
SegmentMillis = Annotated[int, Field(ge=1_000, le=MAX_MS)]
TtlMillis = Annotated[int, Field(ge=1, le=MAX_MS)]
Deliveries = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1, le=MOST)]
GraceMillis = Annotated[int, Field(ge=MIN_VACUUM_GRACE_MS, le=MAX_MS)]


def _checked_name(value: str) -> str:
    if not is_name(value):
        raise ValueError(f"{value!r} cannot name a queue")
    return value


QueueName = Annotated[str, AfterValidator(_checked_name)]


class QueueSettings(BaseModel):
    """Settings of one queue. Every duration (``…_ms``) is in milliseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rebalance_delay_ms: Millis = Field(
        5_000, description="holddown before a rebalance, so that consumers can settle (R5)"
    )
    max_handoff_time_ms: Millis = Field(3_000, description="how long a handoff waits for acknowledgements (H1, H4)")
    retention_ms: Millis | None = Field(
        None, description="remove messages older than this, even if nobody read them; none keeps them (Q8)"
    )
    min_retention_ms: Millis = Field(
        0, description="keep messages at least this long, even if every group has acknowledged them (Q8)"
    )
    max_bytes: Bytes | None = Field(
        None,
        description="while a partition has more bytes, remove its oldest file, even if nobody read it; none sets no limit (Q8)",
    )
    vacuum_grace_ms: GraceMillis = Field(
        86_400_000,
        description="age after which a file that no log names may be deleted, at least 1h; a write may take half of this time",
    )

    segment_ms: SegmentMillis | None = Field(
        3_600_000,
        description="maintenance merges small files of messages that arrived in one period of this length, once the period has been over for as long; none leaves them",
    )
    max_clock_skew_ms: SkewMillis = Field(
        600_000,
        description="how far the clock of a machine that writes or maintains the queue may differ from the store's, at least 1 minute and at most a quarter of vacuum_grace_ms",
    )
    durability: Literal["process", "disk"] = Field(
        "process",
        description="what a confirmed message survives: the end of any process, or also a power cut (disk); an object store always keeps it",
    )
    reject_to_sender: Literal["off", "on", "including_when_shutdown"] = Field(
        "including_when_shutdown",
        description="what happens while ingress is disabled: a producer gets an error, or (off, on) its messages are discarded and counted (S3)",
    )

    max_deliveries: Deliveries | None = Field(
        None,
        description="after this many deliveries (at least 2) without an acknowledgement, a message goes to dead_letter_queue",
    )
    message_ttl_ms: TtlMillis | None = Field(
        None,
        description="do not deliver a message that is older than this when it would be delivered; none delivers all",
    )
    message_ttl_column: str | None = Field(
        None,
        description="an integer column with the milliseconds after which a message is too old; if its value is null, message_ttl_ms alone counts",
    )
    expired_messages: Literal["discard", "dead_letter"] = Field(
        "discard", description="what happens to a message that is too old (message_ttl_ms, message_ttl_column)"
    )
    dead_letter_queue: QueueName | None = Field(
        None, description="the queue for messages that cannot be processed; created if it does not exist"
    )
    dead_letter_order: Literal["skip", "hold"] = Field(
        "skip",
        description="after a dead message, deliver the later messages of its key (skip), or send them to dead_letter_queue, too, until the redrive (hold)",
    )

    @property
    def durable(self) -> bool:
        """Whether every write is forced to the disk."""
        return self.durability == "disk"

    @property
    def features(self) -> tuple[str, ...]:
        """The features of the format that a program must know to use a queue with these settings. Without them it would do what the settings forbid."""
        return (format.FORCED_WRITES,) * self.durable + (format.MIN_RETENTION,) * (self.min_retention_ms > 0)

    @property
    def leaves_out(self) -> bool:
        """Whether some messages may not be delivered."""
        return any(v is not None for v in (self.max_deliveries, self.message_ttl_ms, self.message_ttl_column))

    def check_together(self) -> QueueSettings:
        """These settings, if none contradicts another, and no messages would be lost because a setting is missing.

        Raises
        ------
        InvalidArgumentError
        """
        if self.retention_ms is not None and self.min_retention_ms > self.retention_ms:
            wrong = (
                f"min_retention_ms={self.min_retention_ms} keeps messages that retention_ms={self.retention_ms} removes"
            )
            raise InvalidArgumentError(
                f"queue settings: {wrong}; set retention_ms to none, or to at least min_retention_ms", settings=wrong
            )
        if 4 * self.max_clock_skew_ms > self.vacuum_grace_ms:
            wrong = f"max_clock_skew_ms={self.max_clock_skew_ms} is more than a quarter of vacuum_grace_ms={self.vacuum_grace_ms}"
            raise InvalidArgumentError(
                f"queue settings: {wrong}, so maintain could delete files that readers still need; set a shorter max_clock_skew_ms or a longer "
                "vacuum_grace_ms",
                settings=wrong,
            )
        holds = ["dead_letter_order='hold'"] if self.dead_letter_order == "hold" else []
        needs = [
            *(["max_deliveries"] if self.max_deliveries is not None else []),
            *(["expired_messages='dead_letter'"] if self.expired_messages == "dead_letter" else []),
            *holds,
        ]
        if needs and self.dead_letter_queue is None:
            wrong = f"{' and '.join(needs)} needs a dead_letter_queue"
            raise InvalidArgumentError(f"queue settings: {wrong}; set both", settings=wrong)
        if holds and self.max_deliveries is None:
            wrong = f"{holds[0]} needs max_deliveries, without which no message is dead"
            raise InvalidArgumentError(f"queue settings: {wrong}; set both", settings=wrong)
        return self

    def wrong_columns(self, schema: Struct) -> str:
        """What is wrong with the columns that the settings name; empty if nothing is."""
        name, types = self.message_ttl_column, {field["name"]: field["type"] for field in schema["fields"]}
        if name is None or types.get(name) in INTEGERS:
            return ""
        found = f"is of type {types[name]}" if name in types else "is not there"
        fitting = ", ".join(column for column, type_ in types.items() if type_ in INTEGERS) or "none"
        return f"message_ttl_column={name!r}: the column {found}; name an integer column of the messages ({fitting}) with milliseconds"

    def check_columns(self, schema: Struct) -> QueueSettings:
        """These settings, if the columns that they name exist and have the right type.

        Raises
        ------
        InvalidArgumentError
        """
        if wrong := self.wrong_columns(schema):
            raise InvalidArgumentError(f"queue settings: {wrong}", settings=wrong)
        return self

    @classmethod
    def parse(cls, values: dict[str, Any]) -> QueueSettings:
        """Settings that a user gives.

        Raises
        ------
        InvalidArgumentError
            With every wrong setting named.
        """
        return cls._parsed(values).check_together()

    @classmethod
    def _parsed(cls, values: dict[str, Any]) -> QueueSettings:
        try:
            return cls(**values)
        except ValidationError as error:
            wrong, known = _wrong(error), ", ".join(cls.model_fields)
            raise InvalidArgumentError(f"queue settings: {wrong}. Known settings: {known}", settings=wrong) from None

    @classmethod
    def changes(cls, values: dict[str, Any], reset: Collection[str] = ()) -> dict[str, Any]:
        """The changes that a user wants: the given settings, and the defaults of settings that are reset.

        Raises
        ------
        InvalidArgumentError
            With every wrong setting named.
        """
        if "key_hash" in {*values, *reset}:
            raise InvalidArgumentError(
                "key_hash decides in which partition each key lies, so it never changes; create another queue with it, and let a job copy the "
                "messages",
                settings="key_hash",
            )
        twice = sorted(set(reset) & values.keys())
        if twice:
            raise InvalidArgumentError(
                f"queue settings: {', '.join(twice)} are both given and reset; do one of the two",
                settings=", ".join(twice),
            )
        defaults = {name: cls.model_fields[name].default if name in cls.model_fields else None for name in reset}
        parsed = cls._parsed({**values, **defaults})
        return {name: getattr(parsed, name) for name in (*values, *defaults)}

    @classmethod
    def stored(cls, values: dict[str, Any]) -> QueueSettings:
        """Settings from a control table. Settings that only a newer program knows are ignored.

        Raises
        ------
        ValueError
            If settings are wrong: the table was edited. The error names every wrong setting.
        """
        try:
            return cls(**{name: value for name, value in values.items() if name in cls.model_fields})
        except ValidationError as error:
            raise ValueError(f"settings: {_wrong(error)}") from None


def _wrong(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {_reason(e)}" for e in error.errors())


def _reason(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such setting"
    if error["type"].startswith("int_") and str(error["loc"][0]).endswith("_ms"):
        return f"give milliseconds as a whole number; a command also takes 250ms, 5s, 10m, 12h or 7d (given: {error['input']!r})"
    return error["msg"].removeprefix("Value error, ")


def check_partition_count(partitions: object) -> int:
    """Return the partition count if a queue can have it (1 to 4096, or 0: exclusive).

    Raises
    ------
    InvalidArgumentError
        Otherwise.
    """
    if isinstance(partitions, int) and not isinstance(partitions, bool) and 0 <= partitions <= MAX_PARTITIONS:
        return partitions
    raise InvalidArgumentError(
        f"partitions={partitions!r}: a queue has 1 to {MAX_PARTITIONS} partitions, or 0 for an exclusive queue",
        partitions=partitions,
    )
