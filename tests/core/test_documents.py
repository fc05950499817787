"""The documents say what the code does, as far as a program can tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spark_partq.core import diagram, errors
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.facts import Kind, Member, PartitionState, Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.transitions import STATUS_TRANSITIONS, TRANSITIONS
from spark_partq.core.queue import facts as queue_facts
from spark_partq.core.queue import transitions as queue_transitions
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.replica import facts as replica_facts
from spark_partq.core.replica import state as replica_state
from spark_partq.spark.options import Options
from spark_partq.storage.group import ack_table, control
from tests.core.links import anchors

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)


def text(name: str) -> str:
    return (ROOT / name).read_text()


def section(document: str, heading: str) -> str:
    """What stands below a heading, up to the next one of the same or a higher level."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n", document, re.MULTILINE)
    assert found, f"there is no section {heading!r}"
    rest = document[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def table(part: str) -> list[list[str]]:
    """Cells of the rows of all tables, without their heads."""
    rows = [line for line in part.splitlines() if line.startswith("|")]
    heads = {i for i, line in enumerate(rows) if set(line) <= set("|-")}
    return [
        [cell.strip() for cell in line[1:-1].split("|")]
        for i, line in enumerate(rows)
        if i not in heads and i + 1 not in heads
    ]


def names(rows: list[list[str]]) -> list[str]:
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]


# ---- diagrams
DRAWN = {
    "docs/rebalance.md": [diagram.group_status_diagram(), diagram.group_partition_diagram()],
    "docs/scaling.md": [diagram.queue_status_diagram(), diagram.queue_phase_diagram()],
    "docs/replicas.md": [diagram.replica_diagram()],
}


@pytest.mark.parametrize("document", DRAWN)
def test_diagrams_are_drawn_from_the_tables(document: str) -> None:
    drawn = re.findall(r"```mermaid\n(stateDiagram.*?)```", text(document), re.DOTALL)
    assert drawn == DRAWN[document]


def arrows(drawn: str) -> list[tuple[str, str, str]]:
    """Fact, state before and state after of each arrow."""
    return [
        (kind, *("Unknown" if state == "[*]" else state for state in (before, after)))
        for before, after, kinds in re.findall(r"^  (\S+) --> (\S+): (.+)$", drawn, re.MULTILINE)
        for kind in kinds.split(", ")
    ]


def test_diagrams_have_every_transition_once() -> None:
    found = re.findall(r"^  (\S+) --> (\S+)$", diagram.group_status_diagram(), re.MULTILINE)
    assert found == [("[*]", GroupState().status), *STATUS_TRANSITIONS]
    tables: list[tuple[str, Any]] = [
        (diagram.group_partition_diagram(), TRANSITIONS),
        (diagram.queue_status_diagram(), queue_transitions.STATUS_TRANSITIONS),
    ]
    for drawn, table_ in tables:
        assert sorted(arrows(drawn)) == sorted((kind, *pair) for kind, pairs in table_.items() for pair in pairs)


@pytest.mark.parametrize(
    ("drawn", "transitions"),
    [
        (diagram.queue_phase_diagram(), queue_transitions.TRANSITIONS),
        (diagram.replica_diagram(), replica_state.TRANSITIONS),
    ],
)
def test_diagrams_of_phases_have_every_change(drawn: str, transitions: Any) -> None:
    changes = [(kind, *pair) for kind, pairs in transitions.items() for pair in pairs if pair[0] != pair[1]]
    assert sorted(arrows(drawn)) == sorted(changes)


def test_every_change_of_status_is_explained() -> None:
    rows = table(section(text("docs/rebalance.md"), "Status of a group (R7)"))
    assert sorted((Status(before), Status(after)) for before, after, _ in rows) == sorted(STATUS_TRANSITIONS)


# ---- protocol
def test_protocol_has_every_column() -> None:
    protocol = text("docs/PROTOCOL.md")
    for heading, columns in (("Group control table", control.COLUMNS), ("Ack table", ack_table.COLUMNS)):
        types: dict[str, str] = {}
        first = section(protocol, heading).split("\n\n| kind |")[0].split("Columns that a kind")[0]
        for row in table(first):
            told = [type_.replace("integer", "int") for type_ in row[1].split(", ")]
            found = names([row])
            types |= dict(zip(found, told if len(told) == len(found) else told * len(found), strict=True))
        assert types == {name: type_.replace("integer", "int") for name, type_ in columns}


def test_protocol_has_every_fact() -> None:
    part = section(text("docs/PROTOCOL.md"), "Group control table")
    facts = part[part.index("| kind | columns |") : part.index("The `body` of `MemberJoined`")]
    assert sorted(row[0].strip("`") for row in table(facts)) == sorted(Kind)


@pytest.mark.parametrize(
    ("heading", "kinds"), [("Queue control table", queue_facts.Kind), ("Replicas (S7)", replica_facts.Kind)]
)
def test_protocol_has_every_fact_of_queues_and_replicas(heading: str, kinds: Any) -> None:
    part = section(text("docs/PROTOCOL.md"), heading)
    rows = table(part[part.index("| kind | body |") :].partition("\n\n")[0])
    assert sorted(names(rows)) == sorted(kinds)


def test_protocol_has_every_setting_with_its_default() -> None:
    part = section(text("docs/PROTOCOL.md"), "Queue control table")
    rows = table(part[part.index("| setting | default |") : part.index("A process that creates a queue or changes")])
    told = {name.strip("`"): json.loads(default) for name, default, _ in rows}
    assert told == json.loads(QueueSettings().model_dump_json())


def test_protocol_has_all_that_a_member_says() -> None:
    part = section(text("docs/PROTOCOL.md"), "Group control table")
    said = part[part.index("The `body` of `MemberJoined`") : part.index("### Replay")]
    member = Member("a", "a1", 1, 1, ("balanced",), ("q",))
    assert sorted(names(table(said))) == sorted(member.body())


def test_protocol_has_every_transition() -> None:
    rows = table(section(section(text("docs/PROTOCOL.md"), "Group control table"), "Replay"))
    told = set()
    for fact, change, *_ in rows:
        kind = Kind(fact.strip("`"))
        if "→" not in change:  # any but Unknown, which stays
            told |= {(kind, held, held) for held in PartitionState if held is not PartitionState.UNKNOWN}
            continue
        before, after = change.split(" → ")
        told |= {(kind, PartitionState(held), PartitionState(after)) for held in re.split(r", | or ", before)}
    assert told == {(kind, *pair) for kind, pairs in TRANSITIONS.items() for pair in pairs}


def test_protocol_has_every_field_of_a_snapshot() -> None:
    example = section(section(text("docs/PROTOCOL.md"), "Group control table"), "Files, snapshots")
    told = re.search(r"```json\n(.*?)```", example, re.DOTALL)
    assert told
    body = json.loads(told[1])
    state = snapshot.from_json(body)
    assert json.loads(json.dumps(snapshot.to_json(state))) == body
    assert (state.status, state.flows, len(state.partitions), len(state.floors)) == (Status.READY, ["b/0"], 1, 1)
    assert state.basis == state.view()


def test_ack_columns_are_those_of_a_row() -> None:
    assert {name for name, _ in ack_table.COLUMNS} == {*AckRow.__dataclass_fields__, "at"}


# ---- options, errors, links
def test_every_option_is_explained_with_its_default() -> None:
    document = text("docs/options.md")
    told = {
        name: row[1].strip("`") for row in table(document) for name in re.findall(r"`(\w+)", row[0]) if len(row) == 3
    }
    assert set(told) == set(Options.model_fields)
    for name, field in Options.model_fields.items():
        if field.default is None or name in ("path", "queue", "storageOptions"):
            assert told[name] in (
                "required",
                "",
                "one of its own, kept in the checkpoint",
                "made up, kept in the checkpoint",
            )
        else:
            assert told[name] == (str(field.default).lower() if name == "failOnDataLoss" else str(field.default))


def test_errors_that_documents_name_exist() -> None:
    known = {
        cls.error_class for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.PartqError)
    }
    for document in DOCUMENTS:
        named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+|FENCED)`", document.read_text()))
        variables = {name for name in named if name.startswith(("SPARK_PARTQ_", "AWS_", "AZURE_", "GOOGLE_"))}
        assert named - variables <= known, document.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """To a file that is there, and to a heading in it."""
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", document.read_text()):
        if not target.startswith("http"):
            file = document.parent / target if target else document
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def test_python_of_documents_is_python() -> None:
    for document in DOCUMENTS:
        for code in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
            compile(code, str(document), "exec")
