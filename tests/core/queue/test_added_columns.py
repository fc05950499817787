"""Columns that a queue gets later: what the facts say, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from spark_partq.core.errors import InvalidArgumentError, NewerStoreError, PartqError, SchemaMismatchError
from spark_partq.core.format import ADDED_COLUMNS, check_readable
from spark_partq.core.invariants import InvariantError
from spark_partq.core.payload.dead_letters import with_origin, without_origin
from spark_partq.core.payload.schema import Struct, check_same_columns, is_readable_as, payload_schema
from spark_partq.core.queue import decide, replicas
from spark_partq.core.queue.alter import add_columns, alter_settings
from spark_partq.core.queue.facts import Kind, QueueFact
from spark_partq.core.queue.invariants import check
from spark_partq.core.queue.same import differences
from spark_partq.core.queue.state import QueueState, after
from tests.core.queue.queues import create, follow, ready


def names(schema: Struct) -> list[str]:
    return [column["name"] for column in schema["fields"]]


def with_added(state: QueueState, ddl: str) -> QueueState:
    return follow(state, add_columns(state, payload_schema(ddl)))


def test_they_come_behind_the_others_and_older_programs_stop() -> None:
    state = ready()
    facts = add_columns(state, payload_schema("note string, more int"))
    assert [fact.kind for fact in facts] == [Kind.FORMAT_RAISED, Kind.COLUMNS_ADDED]
    added = follow(state, facts)
    assert names(added.schema) == [*names(state.schema), "note", "more"] and added.added == ("note", "more")
    assert added.format.features == (ADDED_COLUMNS,)
    again = add_columns(added, payload_schema("more int, last double, note string"))
    assert [fact.kind for fact in again] == [Kind.COLUMNS_ADDED]
    assert follow(added, again).added == ("note", "more", "last")
    assert add_columns(added, payload_schema("note string")) == ()


def test_a_program_that_does_not_know_them_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    state = with_added(ready(), "note string")
    monkeypatch.setattr("spark_partq.core.format.FEATURES", frozenset())
    with pytest.raises(NewerStoreError, match="addedColumns"):
        check_readable(state.format, "the control table")


@pytest.mark.parametrize(
    ("ddl", "error", "says"),
    [
        ("note int", SchemaMismatchError, "has a column 'note', which is string and not int"),
        ("NOTE string", InvalidArgumentError, "occur twice"),
        ("_offset long", InvalidArgumentError, "every queue uses itself"),
        ("dead_reason string", InvalidArgumentError, "can have no dead_letter_queue"),
        ("other interval day", InvalidArgumentError, "cannot be kept"),
        ("a b c", InvalidArgumentError, "a b c"),
    ],
)
def test_what_cannot_be_is_refused(ddl: str, error: type[PartqError], says: str) -> None:
    settings = {"max_deliveries": 2, "dead_letter_queue": "dead"}
    state = with_added(follow(ready(), alter_settings(ready(), settings, 0)), "note string")
    with pytest.raises(error, match=says):
        add_columns(state, payload_schema(ddl))


def test_nothing_is_decided_where_it_would_be_lost() -> None:
    fenced = follow(ready(), replicas.add_replica(ready(), "r"))
    fenced = follow(fenced, replicas.fence(fenced, "r"))
    for state in (create(2), fenced, follow(ready(), decide.delete(ready()))):
        assert add_columns(state, payload_schema("note string")) == ()


@pytest.mark.parametrize("columns", ["note", [], [{"name": "note"}], [{"name": "note", "type": "interval"}], [1], None])
def test_a_damaged_fact_is_refused(columns: Any) -> None:
    state = with_added(ready(), "first string")
    with pytest.raises(ValueError):
        after(state, QueueFact(Kind.COLUMNS_ADDED, {"columns": columns}))


def test_a_fact_needs_the_feature_and_new_names() -> None:
    state = ready()
    _, added = add_columns(state, payload_schema("note string"))
    with pytest.raises(ValueError, match="format"):
        after(state, added)
    with pytest.raises(ValueError, match="is there"):
        after(with_added(state, "note string"), added)


def test_a_column_never_goes() -> None:
    before = with_added(ready(), "note string")
    without = QueueState(**{**vars(before), "schema": ready().schema, "added": ()})
    with pytest.raises(InvariantError):
        check(before, without, [])


def test_messages_can_be_read_without_what_was_added() -> None:
    whole, old = payload_schema("a string, b int, note string"), payload_schema("a string, b int")
    assert is_readable_as(whole, ("note",), old) and is_readable_as(whole, ("note",), whole)
    assert not is_readable_as(whole, (), old)
    assert not is_readable_as(old, (), whole)
    assert is_readable_as(whole, ("note",), payload_schema("b int, a string"))
    assert not is_readable_as(whole, ("note",), payload_schema("a string, b long"))


def test_rows_may_lack_them_and_nothing_else() -> None:
    whole = payload_schema("a string, b int, note string")
    check_same_columns(whole, payload_schema("b int, a string"), "rows", "q", may_lack=["note"])
    check_same_columns(payload_schema("a string"), payload_schema("a string, x int"), "rows", "q", may_add=["x"])
    for ddl in ("a string", "a string, b int, note int", "a string, b int, x int"):
        with pytest.raises(SchemaMismatchError):
            check_same_columns(whole, payload_schema(ddl), "rows", "q", may_lack=["note"])


def test_a_dead_message_queue_has_them_behind_its_own() -> None:
    payload = payload_schema("a string, note string")
    columns = {"type": "struct", "fields": [*with_origin(payload_schema("a string"))["fields"], payload["fields"][1]]}
    assert without_origin(columns) == payload and without_origin(payload) is None


def test_who_creates_the_queue_again_need_not_know_them() -> None:
    old = ready()
    new = with_added(old, "note string")
    assert differences(new, old) == differences(new, new) == []
    (told,) = differences(old, new)
    assert told.startswith("its schema is")
