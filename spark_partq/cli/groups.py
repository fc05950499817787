"""Commands about consumer groups."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import GroupName, Json, QueueName, Target, app, count
from spark_partq.cli.output import print_json, say, show
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.health import BROKEN
from spark_partq.spark.jobs import Stop
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect.group_history import recent
from spark_partq.storage.procedures import rebalance as rebalancer
from spark_partq.storage.procedures.rebalance import Rebalancer


@app.command("describe-group")
def describe_group(context: typer.Context, group: GroupName, as_json: Json = False) -> None:
    """Show a consumer group: its state, who has which partitions, and how far behind it is.

    Exit code 1 if the group was deleted, or has members and the sessions of all of them have expired.
    """
    target: Target = context.obj
    found = partq.describe_group(target.store, group, storage_options=target.storage_options)
    if as_json:
        print_json(found.to_dict())
    else:
        show(render.group(found))
        for warning in found.warnings:
            say(*render.filled(f"warning: {warning}", rest="  "))
    if found.state in BROKEN:
        raise typer.Exit(1)


@app.command("history")
def history(
    context: typer.Context,
    group: GroupName,
    as_json: Json = False,
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="The last N facts only.")] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="[QUEUE/]P", help="Facts about this partition only: 3, or orders/3.")
    ] = None,
    kind: Annotated[
        list[Kind] | None, typer.Option(metavar="KIND", help="Facts of this kind only; may be repeated: Granted.")
    ] = None,
) -> None:
    """Show the facts of a consumer group in order: who came and went, who got what, when and why."""
    target: Target = context.obj
    queue, number = _queue_and_partition(partition)
    opened = open_group(target.opened, group, deleted=True)
    some = partition is not None or kind
    rows = opened.history() if last is None or some else recent(target.opened, group, last)
    if partition is not None:
        rows = [row for row in rows if row["partition"] == number and queue in (None, row["queue"])]
        if not rows:
            known = ", ".join(sorted(q.name for q in opened.state.queues.values())) or "none"
            raise partq.InvalidArgumentError(
                f"group {group!r} never had a partition {partition}; its queues: {known}",
                group=group,
                partition=partition,
            )
    rows = [row for row in rows if not kind or row["kind"] in kind]
    rows = rows[-last:] if last is not None else rows
    if as_json:
        print_json([{**row, "at": row["at"].isoformat()} for row in rows])
        return
    say(*render.facts(rows))


def _queue_and_partition(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    found = re.fullmatch(r"(?:(.+)/)?(\d+)", text)
    if found is None:
        raise typer.BadParameter(f"--partition {text!r} is neither a number nor QUEUE/NUMBER")
    return found[1], int(found[2])


@app.command("explain")
def explain(
    context: typer.Context,
    queue: QueueName,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="Number of the partition.")],
    group: Annotated[str, typer.Option(metavar="GROUP", help="The consumer group.")],
    as_json: Json = False,
) -> None:
    """Explain why a partition is where it is, and what its next messages wait for."""
    target: Target = context.obj
    found = partq.explain(target.store, queue, partition, group, storage_options=target.storage_options)
    if as_json:
        print_json(found.to_dict())
    else:
        say(*render.explanation(found))


@app.command("reset-offsets")
def reset_offsets(
    context: typer.Context,
    group: GroupName,
    to: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help='earliest, latest, time:2026-11-01T00:00:00Z, by:P1D (one day back), or offsets: \'{"QUEUE": {"3": 120}}\' (-2 first, -1 end).',
        ),
    ],
    queue: Annotated[list[str] | None, typer.Option(metavar="QUEUE", help="Only this queue; may be repeated.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be set, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Set the positions of a consumer group that nobody consumes in. An active one is refused.

    Messages that come again are marked as redelivered. A table that delta_sink writes has their rows already, and gets none twice.
    """
    target: Target = context.obj
    options = target.storage_options
    if not dry_run and not yes:
        planned = partq.reset_offsets(target.store, group, to, queue, dry_run=True, storage_options=options)
        _confirm(
            f"Group {group}: {_outcome(planned)}. Go on?",
            f"the positions of group {group!r} were not set: not confirmed (--yes does not ask, --dry-run says what would be set)",
            group,
        )
    found = partq.reset_offsets(target.store, group, to, queue, dry_run, storage_options=options)
    if as_json:
        print_json([reset.to_dict() for reset in found])
        return
    table = render.table("queue", partition="right", old="right", new="right", again="right", skipped="right")
    for reset in found:
        cells = reset.partition, reset.old, reset.new, reset.again, reset.skipped
        table.add_row(reset.queue, *map(render.number, cells))
    show(table)
    say(f"{'would set' if dry_run else 'set'} {_outcome(found)}")
    if any(reset.again for reset in found):
        say(
            "what comes again is marked as redelivered; a table that delta_sink writes has it already, and gets nothing twice"
        )


def _outcome(resets: list[partq.OffsetReset]) -> str:
    again, skipped = sum(r.again for r in resets), sum(r.skipped for r in resets)
    return f"{count(len(resets), 'partition')}: {count(again, 'message')} come again, {count(skipped, 'message')} are skipped"


def _confirm(question: str, refused: str, group: str) -> None:
    """Ask; without a terminal nobody can answer.

    Raises
    ------
    InvalidArgumentError
        If the answer is not yes.
    """
    if not sys.stdin.isatty() or not typer.confirm(question, err=True):
        raise partq.InvalidArgumentError(refused, group=group)


@app.command("rebalance")
def rebalance(
    context: typer.Context,
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="One group. Default: all.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until SIGTERM or Ctrl-C, also with groups that are made later.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(min=0.05, max=rebalancer.MAX_EVERY_S, metavar="SECONDS", help="How often to read the groups."),
    ] = 1.0,
) -> None:
    """Decide what is due in consumer groups, as their queries do themselves.

    It is needed only where no query of a group is alive to decide: members that died are then taken out, and handoffs and
    holddowns are ended. Without --watch it ends as soon as each group is Ready and each member has shown a heartbeat or was
    taken out, which takes a session timeout if one has died. Each decision is printed as a line.
    """
    target: Target = context.obj
    watcher = Rebalancer(target.opened, group)
    stop = Stop()

    def report(name: str, facts: list[GroupFact]) -> None:
        for fact in facts:
            say(render.fact_line(name, fact))

    def complain(error: partq.PartqError) -> None:
        say(f"error: {error}", error=True)

    rebalancer.run(watcher, every, stop.wait, report, complain if watch else None)
    if not watch:
        for one in watcher.groups:
            say(f"{one.name}: {one.state.status}, {count(len(one.state.members), 'member')}")


@app.command("delete-group")
def delete_group(
    context: typer.Context,
    group: GroupName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget a consumer group and its positions, so that messages no longer wait for it. An active one is refused."""
    target: Target = context.obj
    store = target.opened  # refused before anything is asked
    if not yes:
        _confirm(
            f"Group {group} in {store.uri} will forget what it has read; messages that only it has not read may be removed. Go on?",
            f"group {group!r} was not deleted: not confirmed (--yes does not ask)",
            group,
        )
    partq.delete_group(target.store, group, storage_options=target.storage_options)
    say(f"deleted group {group}")
