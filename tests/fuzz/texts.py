"""Targets: what a user gives as text or as a dictionary."""

from __future__ import annotations

import json
import random
from typing import Any

from spark_partq.core.delivery.offsets import parse_offsets
from spark_partq.core.delivery.resets import parse_goal
from spark_partq.core.errors import PartqError
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.spark.options import Options
from tests.fuzz.change import changed, strange, with_character
from tests.fuzz.run import Target

OURS = (PartqError,)

_SETTINGS = {
    "rebalance_delay_ms": 0, "max_handoff_time_ms": 5, "retention_ms": 86_400_000, "vacuum_grace_ms": 3_600_000, "segment_ms": None,
    "max_clock_skew_ms": 60_000, "durability": "disk", "reject_to_sender": "off", "max_deliveries": 3, "message_ttl_ms": 5,
    "message_ttl_column": "ttl", "expired_messages": "dead_letter", "dead_letter_queue": "dead", "dead_letter_order": "hold",
}  # fmt: skip
_DDL = "k string, `a b` bigint comment 'c', d decimal(5,2), l array<struct<x:int,y:map<string,array<date>>>>, t timestamp_ntz -- end\n, e binary"
_WORDS = [
    "struct<", "array<", "map<", ">", ">>", "int", "decimal(", ")", "(", ",", ":", "not null", "collate UTF8_LCASE", "comment", "'", "`", '"', "--",
    "/*", "*/", "as (select 1)", "using delta", "interval", "generated always as (1)", "default 1", ";", "\n", "é", "timestamp with time zone", "primary key",
]  # fmt: skip
_OPTIONS = {
    "path": "/store", "queue": "orders, other", "group": "g", "flows": "2", "instanceId": "i", "assignor": "balanced,weighted", "weight": "1.0",
    "sessionTimeoutMs": "10000", "startingOffsets": '{"orders": {"0": 10, "1": -2}}', "endingOffsets": "latest", "startingTimestamp": "1700000000000",
    "startingOffsetsByTimestampStrategy": "latest", "failOnDataLoss": "false", "maxRowsPerTrigger": "100", "maxBytesPerTrigger": "10m",
    "maxUnackedPerFlow": "9", "maxPollIntervalMs": "60000", "maxBarrierWaitMs": "0", "ack": "manual", "storageOptions.aws_region": "eu",
}  # fmt: skip
_PARTITIONS = {"orders": range(4), "other": range(-1, 0)}
_GOALS = ["by:P1DT12H", "time:2026-11-01T00:00:00Z", '{"orders": {"3": 120, "1": -1}}', "earliest"]


def _struct_changed(valid: list[Any], chance: random.Random) -> list[Any]:
    struct, key = valid
    return [changed(struct, chance), chance.choice([key, [], ["no"], key * 2])]


def _deepened(valid: list[Any], chance: random.Random) -> list[Any]:
    """A text with words of DDL put in, taken out or doubled; sometimes many of one."""
    text, key = valid
    for _ in range(chance.randint(1, 4)):
        at, how = chance.randrange(len(text) + 1), chance.random()
        if how < 0.4:
            text = f"{text[:at]}{chance.choice([' ', ''])}{chance.choice(_WORDS)}{chance.choice([' ', ''])}{text[at:]}"
        elif how < 0.6:
            text = text[:at] + text[at + chance.randint(1, 9) :]
        elif how < 0.8:
            text = with_character(text, chance)
        elif how < 0.82:
            text = text[:at] + chance.choice(_WORDS) * chance.choice([30, 60, 200]) + text[at:]
        else:
            text = text[:at] + text[chance.randrange(len(text) + 1) :][:60] + text[at:]
    return [text, key]


def _settings(values: Any) -> None:
    QueueSettings.parse(values)
    QueueSettings.changes(values, ["retention_ms"] if "retention_ms" not in values else [])


def _options_changed(valid: dict[str, str], chance: random.Random) -> dict[str, str]:
    """Spark gives texts, and nothing else."""
    given = dict(valid)
    for _ in range(chance.randint(1, 3)):
        name, how = chance.choice(list(valid)), chance.random()
        value = strange(chance)
        if how < 0.1:
            given.pop(name, None)
        elif how < 0.2:
            more = chance.choice(
                ["storageOptions", "queuePattern", "endingTimestamp", "maxFilesPerTrigger", name.upper(), name[1:]]
            )
            given[more] = str(value)
        elif how < 0.6:
            given[name] = with_character(given.get(name, ""), chance)
        else:
            given[name] = value if isinstance(value, str) else json.dumps(value)
    return given


def _options(given: dict[str, str]) -> None:
    options = Options.parse(given)
    _ = options.consumer, repr(options)
    parse_offsets("startingOffsets", options.startingOffsets, _PARTITIONS)


def _goal_changed(valid: list[str], chance: random.Random) -> str:
    text = chance.choice(valid)
    if text.startswith("{") and chance.random() < 0.5:
        return json.dumps(changed(json.loads(text), chance))
    for _ in range(chance.randint(1, 3)):
        text = (
            with_character(text, chance)
            if chance.random() < 0.7
            else text.replace(chance.choice(text), chance.choice("0129PTDS-:.,"))
        )
    return text


def _offsets(text: str | list[str]) -> None:
    for one in text if isinstance(text, list) else [text]:
        parse_goal(one, _PARTITIONS)


TARGETS = {
    "settings": Target(lambda: _SETTINGS, changed, _settings, OURS),
    "schema": Target(
        lambda: [payload_schema(_DDL.replace("`a b`", "a")), ["k"]],
        _struct_changed,
        lambda given: payload_schema(*given),
        OURS,
    ),
    "ddl": Target(
        lambda: [_DDL.replace("`a b`", "`a`"), ["k"]], _deepened, lambda given: payload_schema(*given), OURS, one_of=10
    ),
    "options": Target(lambda: _OPTIONS, _options_changed, _options, OURS),
    "goal": Target(lambda: _GOALS, _goal_changed, _offsets, OURS),
}
