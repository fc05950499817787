"""Descriptions as text for a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from spark_partq.core.group.explain import Explanation
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.health import GroupCondition
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.storage.inspect.describe_group import FlowDescription, GroupDescription, MemberDescription
from spark_partq.storage.inspect.describe_queue import QueueDescription

_DETAILS = ("instance", "flow", "to_flow", "status", "body")
_MOST_COLUMNS = 4  # one column per queue, side by side
_MOST_STEPS = 10  # steps (facts) that led to a partition's owner
_MOST_WAITS = 3  # partitions that another partition waits for


def table(*columns: str, **aligned: Any) -> Table:
    """A table: first the left-aligned columns, then the columns with a given alignment."""
    made = Table()
    for name in columns:
        made.add_column(name)
    for name, side in aligned.items():
        made.add_column(name, justify=side)
    return made


def number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def partition_count(count: int) -> str:
    return f"{count:,} partition{'' if count == 1 else 's'}" if count else "exclusive"


def counts(operating: int, configured: int) -> str:
    """Both partition counts of a queue, or one count if both are the same."""
    texts = [number(n) if n else "exclusive" for n in (operating, configured)]
    return texts[0] if operating == configured else f"{texts[0]} → {texts[1]}"


def _counts(configured: int, operating: int) -> str:
    texts = [number(n) if n else "exclusive" for n in (configured, operating)]
    return "exclusive" if texts == ["exclusive"] * 2 else f"{texts[0]} configured, {texts[1]} operating"


def ingress(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"


def setting(value: object) -> str:
    return "none" if value is None else number(value) if isinstance(value, int) else str(value)


def moment(at: str) -> str:
    """A time in UTC (ISO 8601), to the second."""
    return f"{at[:19].replace('T', ' ')} UTC"


def queue(found: QueueDescription) -> RenderableType:
    """A queue: its status and counts (S8), what holds it up, and what each partition holds."""
    about = Table.grid(padding=(0, 2))
    about.add_column()
    about.add_column(overflow="fold")
    about.add_row("queue", found.name)
    about.add_row("status", f"{found.status}, scaling with mode {found.scaling}" if found.scaling else found.status)
    about.add_row("role", found.role)
    about.add_row("partitions", _counts(found.configured_partitions, found.operating_partitions))
    about.add_row("generation", number(found.generation))
    about.add_row("ingress", ingress(found.ingress))
    if found.discarded:
        about.add_row("discarded", f"{found.discarded:,} while ingress was disabled")
    if found.lost:
        about.add_row("lost", f"{found.lost:,} by scaling with mode delete")
    if found.stuck:
        about.add_row("stuck", f"{found.stuck:,} that nobody is given: spark-partq copy-stuck {found.name}")
    about.add_row("replicas", ", ".join(found.replicas) or "none")
    about.add_row("key", ", ".join(found.key) or "none")
    if found.key:
        about.add_row("key_hash", found.key_hash)
    about.add_row("columns", found.schema)
    about.add_row("groups", ", ".join(found.groups) or "none")
    if found.waiting:
        about.add_row("waiting", ", ".join(f"{number(n)} of group {group}" for group, n in found.waiting.items()))
    for name, value in found.settings.items():
        shown = setting(value)
        about.add_row(name, f"{shown} (since {moment(found.altered[name])})" if name in found.altered else shown)
    partitions = table(partition="right", first="right", next="right", depth="right", files="right", size="right")
    for p in found.partitions:
        name = "parent" if p.partition == PARENT else number(p.partition)
        if p.fenced or p.sealed:
            name += " fenced" if p.fenced else " sealed"
        cells = map(number, (p.first_offset, p.next_offset, p.depth, p.files))
        partitions.add_row(name, *cells, size(p.size_bytes))
    partitions.add_section()
    files, size_bytes = sum(p.files for p in found.partitions), sum(p.size_bytes for p in found.partitions)
    partitions.add_row("all", "", "", number(found.depth), number(files), size(size_bytes))
    return Group(about, partitions)


def group(found: GroupDescription) -> RenderableType:
    """A group: its status, its members with their flows, its partitions with their lag (K8)."""
    about = Table.grid(padding=(0, 2))
    about.add_column()
    about.add_column(overflow="fold")
    since = f" since {moment(found.since)}" if found.since else ""
    because = f"{since}{f' ({found.trigger})' if found.trigger else ''}"
    about.add_row("group", found.group)
    if found.state == GroupCondition.DEAD:
        about.add_row("state", f"{found.state}{because}")
        return about
    if found.state != found.status:
        about.add_row("state", found.state)
    about.add_row("status", f"{found.status}{because}")
    about.add_row("assignor", found.assignor or "none, as it has no members")
    if found.protocol:
        about.add_row("protocol", found.protocol)
    about.add_row("rebalance_delay_ms", number(found.rebalance_delay_ms))
    about.add_row("lag", number(found.lag))
    if found.unassigned:
        about.add_row("unassigned", f"{found.unassigned} of {len(found.partitions)} partitions")
    if found.held_keys:
        about.add_row("held keys", ", ".join(f"{number(keys)} of {queue}" for queue, keys in found.held_keys.items()))
    members = table("member", "host", "reads", "assignors", "heartbeat age", "about")
    for member in found.members:
        reads = ", ".join(member.queues) if member.pattern is None else f"pattern {member.pattern}"
        members.add_row(
            member.instance, member.host, reads, ", ".join(member.assignors), _heartbeat(member), _about(member)
        )
    partitions = table(
        "queue", partition="right", position="right", end="right", lag="right", flow="left", epoch="right"
    )
    for p in found.partitions:
        flow_text = p.flow or ("unassigned" if p.subscribed else "not read")
        if p.draining:
            flow_text += f" → {p.handoff_to or '?'}"
        if p.waits_for:
            flow_text += f"\nwaits for {_waits_for(p.waits_for)}"
        numbers_ = [number(n) for n in (p.partition, p.position, p.end, p.lag)]
        partitions.add_row(p.queue, *numbers_, flow_text, number(p.epoch))
    return Group(about, *([members, _clients(found)] if found.members else []), partitions)


def _waits_for(partitions: dict[int, int]) -> str:
    """The first partitions that are waited for, each with the offset up to which."""
    told = [f"{number(n)} up to {number(cut)}" for n, cut in sorted(partitions.items())[:_MOST_WAITS]]
    more = len(partitions) - len(told)
    return ", ".join([*told, *([f"{more} more"] if more else [])])


def _heartbeat(member: MemberDescription) -> str:
    age = "none yet" if member.heartbeat_age_s is None else f"{member.heartbeat_age_s:,.1f} s"
    return f"{age}, expired" if member.expired else age


def _about(member: MemberDescription) -> str:
    details = [f"session timeout {member.session_timeout_ms:,} ms"]
    if member.static:
        details.append("static")
    if member.manual:
        details.append("acknowledges by hand")
    if member.weight != 1:
        details.append(f"weight {member.weight:g}")
    if member.application:
        details.append(member.application)
    if member.executors:
        details.append(f"executors {', '.join(member.executors)}")
    return "\n".join(details)


def _clients(found: GroupDescription) -> Table:
    """For each flow, how many partitions of each queue it owns, and their numbers (K8)."""
    flows = [flow for member in found.members for flow in member.flows]
    states = {flow.flow: _state(member, flow) for member in found.members for flow in member.flows}
    queues = sorted({p.queue for p in found.partitions if p.flow is not None})
    if len(queues) > _MOST_COLUMNS:
        clients = table("flow", "state", "queue", count="right", partitions="left")
        for flow in flows:
            first = [flow.flow, states[flow.flow]]
            for queue, numbers in flow.partitions.items() or [("", ())]:
                clients.add_row(*first, queue, number(len(numbers)), _ranges(numbers))
                first = ["", ""]
        return clients
    clients = table("flow", "state", *queues, total="right")
    for flow in flows:
        cells = [flow.partitions.get(queue, ()) for queue in queues]
        texts = [f"{len(numbers)}: {_ranges(numbers)}" if numbers else "0" for numbers in cells]
        clients.add_row(flow.flow, states[flow.flow], *texts, number(sum(map(len, cells))))
    return clients


def _state(member: MemberDescription, flow: FlowDescription) -> str:
    return "expired" if member.expired else "active" if flow.active else "standby"


def facts(rows: Sequence[Mapping[str, Any]], width: int | None = None, *, header: bool = True) -> list[str]:
    """Rows of a group's history, one line for each fact, aligned and never cut, so that the text can be searched.

    If the lines are wider than `width` columns, a fact takes several lines: first what it is about, then its cause.
    """
    cells = [("seq", "at (UTC)", "fact", "of", "epoch", "offset", "cause")]
    for row in rows:
        before, epoch = row["epoch_before"], row["epoch"]
        epochs = "" if epoch is None else str(epoch) if before == epoch else f"{before} → {epoch}"
        at = row["at"].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        offset = "" if row["offset"] is None else str(row["offset"])
        cells.append((str(row["seq"]), at, row["kind"], _subject(row), epochs, offset, row["cause"]))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(f"{text:{side}{n}}" for text, side, n in zip(line, "><<<>><", widths, strict=True)).rstrip()
        for line in cells
    ]
    if width is not None and max(map(len, lines)) > width:
        return [line for fact in cells[1:] for line in _narrow_fact(*fact, width=width)]
    return lines if header else lines[1:]


def _narrow_fact(
    seq: str, at: str, kind: str, subject: str, epochs: str, offset: str, cause: str, *, width: int
) -> list[str]:
    told = [f"{seq}  {at}  {kind} {subject}".rstrip()]
    told += [f"{name} {value}" for name, value in (("epoch", epochs), ("offset", offset)) if value]
    return [*filled(", ".join(told), rest="    ", width=width), *filled(cause, "    ", width=width)]


def explanation(found: Explanation) -> list[str]:
    """How a partition came to its owner, and what the partition waits for, in lines of at most 80 columns."""
    owner = f", owned by {found.owner}" if found.owner else ""
    lines = filled(f"Partition {found.partition} of queue {found.queue} in group {found.group}: {found.state}{owner}.")
    end = "" if found.end is None else f", it ends at {found.end}"
    lines += filled(f"Position {found.position}, delivered up to {found.delivered}{end}. Epoch {found.epoch}.")
    lines += ["", "How it came there:"]
    left_out = len(found.steps) - _MOST_STEPS
    if left_out > 0:
        lines += filled(
            f"({left_out} facts before: spark-partq history {found.group} --partition {found.queue}/{found.partition})",
            "  ",
        )
    for step in found.steps[-_MOST_STEPS:]:
        lines.append(f"  fact {step.fact}, {step.at[:19].replace('T', ' ')} UTC, {step.kind}")
        lines += filled(f"{step.text}: {step.cause}", "    ")
    lines += ["", "What it waits for:"]
    for wait in found.waits:
        lines += filled(f"{wait.kind}: {wait.text}", "  ")
    return lines if found.waits else [*lines, "  nothing that is known here"]


def filled(text: str, indent: str = "", rest: str | None = None, width: int = 80) -> list[str]:
    """Lines of at most `width` columns, in which no word is cut; all lines after the first begin with `rest`."""
    rest = indent if rest is None else rest
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def fact_line(name: str, fact: GroupFact) -> str:
    """One decision as one line, for a log."""
    row = {"queue": fact.queue, "partition": fact.partition, **{n: getattr(fact, n) for n in _DETAILS}}
    return f"{name}: {fact.kind} {_subject({**row, 'kind': fact.kind})}: {fact.cause}"


def _subject(row: Mapping[str, Any]) -> str:
    partition = "" if row["partition"] is None else f"{row['queue']}/{row['partition']}"
    if row["kind"] == Kind.HANDOFF_STARTED:
        return f"{partition} {row['flow']} → {row['to_flow'] or '?'}"
    if row["kind"] == Kind.STATUS_CHANGED:
        return str(row["status"])
    if row["kind"] == Kind.ASSIGNMENT_COMPUTED:
        body = json.loads(row["body"] or "{}")
        return f"{body.get('assignor')}, {body.get('protocol')}"
    if partition:
        return f"{partition} {row['flow']}" if row["flow"] else partition
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
