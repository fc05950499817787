"""Names that become folders: nothing that could leave the store or look like another name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.core.names import check_name
from spark_partq.storage.store import group_folder, queue_folder

BAD = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "separator": "a/b",
    "way out": "../a",
    "backslash": "a\\b",
    "absolute": "/a",
    "leading dot": ".a",
    "leading underscore": "_a",
    "leading dash": "-a",
    "trailing dot": "a.",
    "space": "a b",
    "trailing newline": "a\n",
    "nul": "a\0",
    "percent": "a%2fb",
    "equals": "a=b",
    "comma": "a,b",
    "too long": "x" * 129,
    "full-width dots": "．．",
    "full-width letter": "ａ",
    "full-width slash": "a／b",
    "two-dot leader": "‥",
    "zero-width space": "a\u200bb",
    "zero-width joiner": "a\u200db",
    "right-to-left override": "a\u202eb",
    "combining accent": "e\u0301",
    "cyrillic a": "\u0430",
    "arabic digit": "a\u0663",
    "surrogate": "\ud800",
    "emoji": "🚀",
    "byte order mark": "\ufeffa",
}


@pytest.mark.parametrize("name", BAD.values(), ids=BAD.keys())
def test_bad_names(name: str) -> None:
    with pytest.raises(partq.InvalidArgumentError, match="cannot name a queue") as caught:
        check_name("queue", name)
    assert caught.value.error_class == "INVALID_ARGUMENT"
    assert caught.value.params["kind"] == "queue"


@pytest.mark.parametrize("name", [None, 3, b"orders", ["orders"]], ids=repr)
def test_names_that_are_no_text(name: object) -> None:
    with pytest.raises(partq.InvalidArgumentError):
        check_name("queue", name)


@pytest.mark.parametrize("name", ["a", "0", "orders", "Orders-2.eu_west", "a..b", "a-", "a_", "x" * 128])
def test_good_names(name: str) -> None:
    assert check_name("queue", name) == name


@given(st.text(max_size=140))
def test_a_name_that_passes_is_one_folder(name: str) -> None:
    """Whatever passes stays one plain path component."""
    try:
        check_name("queue", name)
    except partq.InvalidArgumentError:
        return
    assert Path(queue_folder(name)).parts == ("queues", name)
    assert Path(group_folder(name)).parts == ("groups", name)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "．．"])
def test_every_way_in_checks_the_name(store: str, name: str) -> None:
    """No function of the package takes a bad queue or group name, and nothing is made on disk."""
    with pytest.raises(partq.InvalidArgumentError):
        partq.create_queue(store, name, "a int")
    assert not Path(store).exists()
    partq.create_queue(store, "q", "a int", partitions=1)
    for function in (partq.describe_queue, partq.delete_queue, partq.delete_group, partq.queue_sink):
        with pytest.raises(partq.InvalidArgumentError):
            function(store, name)
    assert sorted(p.name for p in Path(store).parent.iterdir()) == ["store"]
