"""What is no argument of a public function is refused as one."""

from __future__ import annotations

import pytest

from spark_partq.core.arguments import names
from spark_partq.core.errors import InvalidArgumentError


class Column:
    """As of Spark: it has the method, and cannot be iterated."""

    def __iter__(self) -> None:
        raise TypeError("Column is not iterable")


def test_names() -> None:
    assert (names("key", None), names("key", "k"), names("key", ("k", "v"))) == ((), ("k",), ("k", "v"))


@pytest.mark.parametrize("value", [5, [5], ["k", None], Column(), [Column()]])
def test_what_is_no_name(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="neither a name nor a list of names"):
        names("order_by", value)
