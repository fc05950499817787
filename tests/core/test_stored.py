"""Values that were read from a store: each has a type and a range, both ends of it included, and what has not is a `ValueError`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_partq.core import stored

PARTITIONS = range(-1, 12)


def nested(levels: int) -> Any:
    """A list within a list, and so on, with dicts in between."""
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize("value", [0, 1, 2**63 - 1])
def test_a_whole_number(value: int) -> None:
    assert stored.whole(value, "x") == stored.whole_or_none(value, "x") == value


@pytest.mark.parametrize("value", [-1, 2**63, True, 1.0, "1", None, [1]], ids=repr)
def test_no_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match=r"x is .* and not a whole number from 0 to 9223372036854775807"):
        stored.whole(value, "x")


def test_the_ends_of_a_range_are_in_it() -> None:
    for read in (stored.whole, stored.whole_or_none):
        assert [read(value, "x", 3, 5) for value in (3, 5)] == [3, 5]
        for value in (2, 6):
            with pytest.raises(ValueError, match=f"x is {value} and not a whole number from 3 to 5"):
                read(value, "x", 3, 5)


def test_none_may_stand_for_a_number_and_for_a_text() -> None:
    assert stored.whole_or_none(None, "x") is None and stored.text_or_none(None, "x") is None
    assert stored.text_or_none("a", "x") == "a"
    for wrong in (True, 1.5):
        with pytest.raises(ValueError, match="x"):
            stored.whole_or_none(wrong, "x")
    with pytest.raises(ValueError, match="x is 3"):
        stored.text_or_none(3, "x")


@pytest.mark.parametrize("value", [1, 0.5, 1e-300, 9.9e99], ids=repr)
def test_a_number_above_0(value: float) -> None:
    assert stored.positive(value, "x") == value


@pytest.mark.parametrize("value", [0, -1, 0.0, 1e100, float("inf"), float("nan"), True, "1", None], ids=repr)
def test_no_number_above_0(value: object) -> None:
    with pytest.raises(ValueError, match=r"x is .* and not a number above 0"):
        stored.positive(value, "x")


def test_a_text_has_a_length() -> None:
    assert stored.text("a" * 10_000, "x") == "a" * 10_000 and stored.text("abc", "x", 3) == "abc"
    for wrong, most in (("a" * 10_001, 10_000), ("abcd", 3)):
        with pytest.raises(ValueError, match=f"x is 'a.* and not a text of at most {most} characters"):
            stored.text(wrong, "x", most)


@pytest.mark.parametrize("value", [None, 3, b"a", "\ud800"], ids=repr)
def test_no_text(value: object) -> None:
    with pytest.raises(ValueError):
        stored.text(value, "x")


def test_a_list_of_texts() -> None:
    assert stored.texts(["a", "b"], "x") == stored.texts(("a", "b"), "x") == ("a", "b")
    for wrong in ("ab", {"a": 1}, None, ["a", 3]):
        with pytest.raises(ValueError, match="x is "):
            stored.texts(wrong, "x")


def test_a_flag_is_true_or_false_and_no_number() -> None:
    assert stored.flag(True, "x") is True and stored.flag(False, "x") is False
    for wrong in (0, 1, "true", None):
        with pytest.raises(ValueError, match=r"x is .* and neither true nor false"):
            stored.flag(wrong, "x")


def test_a_name_is_one_that_the_product_gives() -> None:
    assert stored.name("a-b", "queue") == "a-b"
    for wrong in ("../a", None, 3):
        with pytest.raises(ValueError, match=r"queue is .*, which is no name"):
            stored.name(wrong, "queue")


# ---- objects
def test_a_body_is_a_json_object() -> None:
    assert stored.body_of('{"a": [1, null]}') == {"a": [1, None]}
    wrong = {
        "its body is no text": [None, b"{}", {}],
        "its body is no JSON object": ["[]", "1", "null", '"a"'],
        "its body is no JSON ": ["", "{", "[" * 100_000, '{"a": NaN}', '{"a": -Infinity}', '{"a": Infinity}'],
    }
    for why, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=why):
                stored.body_of(value)
    with pytest.raises(ValueError, match="the acks is no JSON"):
        stored.body_of("", "the acks")


def test_a_body_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_MAX_JSON", 10)
    assert stored.body_of('{"a": 123}') == {"a": 123}
    with pytest.raises(ValueError, match="its body has 11 characters"):
        stored.body_of('{"a": 1234}')


def test_offsets_by_partition() -> None:
    """Numbers are texts in JSON, and numbers before that."""
    assert stored.offsets_by_partition({"-1": 3, "0": 4, 11: 0}, "x", PARTITIONS) == {-1: 3, 0: 4, 11: 0}
    for wrong in ([1], None, {"0": -1}, {"0": 2**63}, {"0": "1"}):
        with pytest.raises(ValueError, match="x is "):
            stored.offsets_by_partition(wrong, "x", PARTITIONS)


@pytest.mark.parametrize(
    "key", ["-2", "12", "01", "+1", " 1", "1.0", "--1", "-", "", "١", "a", None, True, 1.0, 12, -2], ids=repr
)
def test_no_number_of_a_partition(key: object) -> None:
    with pytest.raises(ValueError, match=r"x has .*, which is no number of a partition"):
        stored.partition_number(key, "x", PARTITIONS)


def test_a_number_of_a_partition_has_at_most_five_digits() -> None:
    assert stored.partition_number("12345", "x", range(10**6)) == 12345
    with pytest.raises(ValueError, match="no number of a partition"):
        stored.partition_number("123456", "x", range(10**6))


# ---- what another program added
def test_unknown_fields_are_kept() -> None:
    assert stored.others({"a": 1, "b": [2], "c": None}, {"a"}) == {"b": [2], "c": None}


def test_unknown_fields_are_not_nested_deeply() -> None:
    """Or nobody could write them again."""
    body = json.loads(json.dumps({"a": nested(49)}))
    assert stored.others(body, set()) == body
    for deep in (nested(50), [1, nested(49)], {"b": 1, "c": nested(49)}):
        with pytest.raises(ValueError, match="'a' is nested too deeply"):
            stored.others({"a": deep}, set())
    assert stored.others({"a": nested(50)}, {"a"}) == {}


def test_what_is_wrong_is_shown_shortly() -> None:
    for wrong, shown in (
        (2**201, "a huge number"),
        (2**200 - 1, str(2**200 - 1)),
        ([1] * 10**6, "a list"),
        (None, "None"),
    ):
        with pytest.raises(ValueError, match=f"x is {shown} and"):
            stored.flag(wrong, "x")
    with pytest.raises(ValueError, match=f"x is '{'a' * 60}' and"):
        stored.flag("a" * 61, "x")
