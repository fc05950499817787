"""Descriptions as text for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from spark_partq.core.group import GroupFact, Kind
from spark_partq.storage.describe_group import FlowDescription, GroupDescription, MemberDescription

_DETAILS = ("instance", "flow", "to_flow", "status", "body")
_MOST_COLUMNS = 4  # of queues, side by side


def table(*columns: str, **aligned: Any) -> Table:
    """A table with left-aligned columns, then those that say how they are aligned."""
    made = Table()
    for name in columns:
        made.add_column(name)
    for name, side in aligned.items():
        made.add_column(name, justify=side)
    return made


def number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def group(found: GroupDescription) -> RenderableType:
    """A group: its status, its members with their flows, its partitions with their lag (K8)."""
    about = Table.grid(padding=(0, 2))
    about.add_column()
    about.add_column(overflow="fold")
    since = f" since {found.since[:19].replace('T', ' ')} UTC" if found.since else ""
    about.add_row("group", found.group)
    about.add_row("status", f"{found.status}{since}{f' ({found.trigger})' if found.trigger else ''}")
    about.add_row("assignor", found.assignor or "none, as it has no members")
    if found.protocol:
        about.add_row("protocol", found.protocol)
    about.add_row("rebalance_delay_ms", number(found.rebalance_delay_ms))
    about.add_row("lag", number(found.lag))
    if found.unassigned:
        about.add_row("unassigned", f"{found.unassigned} of {len(found.partitions)} partitions")
    members = table("member", "host", "reads", "assignors", "about")
    for member in found.members:
        reads = ", ".join(member.queues) if member.pattern is None else f"pattern {member.pattern}"
        members.add_row(member.instance, member.host, reads, ", ".join(member.assignors), _about(member))
    partitions = table(
        "queue", partition="right", position="right", end="right", lag="right", flow="left", epoch="right"
    )
    for p in found.partitions:
        flow_text = "unassigned" if p.flow is None else p.flow
        if p.draining:
            flow_text += f" → {p.handoff_to or '?'}"
        numbers_ = [number(n) for n in (p.partition, p.position, p.end, p.lag)]
        partitions.add_row(p.queue, *numbers_, flow_text, number(p.epoch))
    return Group(about, *([members, _clients(found)] if found.members else []), partitions)


def _about(member: MemberDescription) -> str:
    told = [f"session timeout {member.session_timeout_ms:,} ms"]
    if member.static:
        told.append("static")
    if member.weight != 1:
        told.append(f"weight {member.weight:g}")
    if member.application:
        told.append(member.application)
    if member.executors:
        told.append(f"executors {', '.join(member.executors)}")
    return "\n".join(told)


def _clients(found: GroupDescription) -> Table:
    """Which flow has how many partitions of which queue, and which (K8)."""
    flows = [flow for member in found.members for flow in member.flows]
    queues = sorted({p.queue for p in found.partitions if p.flow is not None})
    if len(queues) > _MOST_COLUMNS:
        clients = table("flow", "state", "queue", count="right", partitions="left")
        for flow in flows:
            first = [flow.flow, _state(flow)]
            for queue, numbers in flow.partitions.items() or [("", ())]:
                clients.add_row(*first, queue, number(len(numbers)), _ranges(numbers))
                first = ["", ""]
        return clients
    clients = table("flow", "state", *queues, total="right")
    for flow in flows:
        cells = [flow.partitions.get(queue, ()) for queue in queues]
        told = [f"{len(numbers)}: {_ranges(numbers)}" if numbers else "0" for numbers in cells]
        clients.add_row(flow.flow, _state(flow), *told, number(sum(map(len, cells))))
    return clients


def _state(flow: FlowDescription) -> str:
    return "active" if flow.active else "standby"


def facts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows of a group's history, one line each, aligned and never cut, so that they can be searched."""
    cells = [("seq", "at (UTC)", "fact", "of", "epoch", "offset", "cause")]
    for row in rows:
        before, epoch = row["epoch_before"], row["epoch"]
        epochs = "" if epoch is None else str(epoch) if before == epoch else f"{before} → {epoch}"
        at = row["at"].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        offset = "" if row["offset"] is None else str(row["offset"])
        cells.append((str(row["seq"]), at, row["kind"], _subject(row), epochs, offset, row["cause"]))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(f"{text:{side}{n}}" for text, side, n in zip(line, "><<<>><", widths, strict=True)).rstrip()
        for line in cells
    ]


def fact_line(name: str, fact: GroupFact) -> str:
    """One decision in a line, for a log."""
    row = {"queue": fact.queue, "partition": fact.partition, **{n: getattr(fact, n) for n in _DETAILS}}
    return f"{name}: {fact.kind} {_subject({**row, 'kind': fact.kind})}: {fact.cause}"


def _subject(row: Mapping[str, Any]) -> str:
    where = "" if row["partition"] is None else f"{row['queue']}/{row['partition']}"
    if row["kind"] == Kind.HANDOFF_STARTED:
        return f"{where} {row['flow']} → {row['to_flow'] or '?'}"
    if row["kind"] == Kind.STATUS_CHANGED:
        return str(row["status"])
    if row["kind"] == Kind.ASSIGNMENT_COMPUTED:
        told = json.loads(row["body"] or "{}")
        return f"{told.get('assignor')}, {told.get('protocol')}"
    if where:
        return f"{where} {row['flow']}" if row["flow"] else where
    return row["instance"] or row["queue"] or ""


def _ranges(numbers: Iterable[int]) -> str:
    """``0-2, 5`` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
