"""Options of ``format("partq")``: each has a range, which is checked before anything is read or written."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.spark.options import Options

MOST = 2**63 - 1
RANGES = {
    "flows": (1, 10_000),
    "sessionTimeoutMs": (500, 86_400_000),
    "maxPollIntervalMs": (1_000, 2_592_000_000),
    "maxBarrierWaitMs": (0, 2_592_000_000),
    "startingTimestamp": (0, 253_402_300_799_999),
    "endingTimestamp": (0, 253_402_300_799_999),
    "maxRowsPerTrigger": (1, MOST),
    "maxBytesPerTrigger": (1, MOST),
    "maxFilesPerTrigger": (1, MOST),
    "maxUnackedPerFlow": (1, MOST),
}


def parsed(**options: object) -> Options:
    return Options.parse({"path": "/store", "queue": "q", **{name: str(value) for name, value in options.items()}})


@pytest.mark.parametrize("name", RANGES)
def test_ranges(name: str) -> None:
    least, most = RANGES[name]
    for value in (least, most):
        assert getattr(parsed(**{name: value}), name) == value
    for value in (least - 1, most + 1, 10**30, "9" * 5_000, "1e3", "-", ""):
        with pytest.raises(partq.InvalidArgumentError, match=name):
            parsed(**{name: value})


def test_every_number_has_a_range() -> None:
    numbers = {name for name, field in Options.model_fields.items() if "int" in str(field.annotation)}
    assert numbers == set(RANGES)


@pytest.mark.parametrize("value", ["8589934592g", "99999999999999999999k", "²k", "k", "-1k"])
def test_sizes_out_of_range(value: str) -> None:
    with pytest.raises(partq.InvalidArgumentError, match="maxBytesPerTrigger"):
        parsed(maxBytesPerTrigger=value)
    assert parsed(maxBytesPerTrigger="8589934591g").maxBytesPerTrigger == 8589934591 << 30


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e100", "1e309"])
def test_weights_that_no_group_takes(value: str) -> None:
    """They would be refused by everyone who reads the group."""
    with pytest.raises(partq.InvalidArgumentError, match="weight"):
        parsed(weight=value)
