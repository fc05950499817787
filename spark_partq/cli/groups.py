"""Commands about consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import (
    EVERY_S,
    Every,
    GroupName,
    Json,
    QueueName,
    Target,
    Watch,
    app,
    confirm,
    count,
    interruptible,
)
from spark_partq.cli.output import json_line, print_json, say, say_prose, show
from spark_partq.cli.watching import show_or_watch
from spark_partq.core.group.facts import GroupFact
from spark_partq.core.group.health import BROKEN
from spark_partq.spark.jobs import Stop
from spark_partq.storage.procedures import rebalance as rebalancer
from spark_partq.storage.procedures.rebalance import Rebalancer


@app.command("describe-group")
def describe_group(
    context: typer.Context, group: GroupName, as_json: Json = False, watch: Watch = False, every: Every = EVERY_S
) -> None:
    """Show a consumer group: its state, which flow has which partitions, and how far behind it is.

    Without --watch the exit code is 1 if the group was deleted, or if it has members and all their sessions have expired.
    """
    target: Target = context.obj

    def tell(found: partq.GroupDescription) -> None:
        show(render.group(found))
        for warning in found.warnings:
            say_prose(f"warning: {warning}")

    found = show_or_watch(
        lambda: partq.describe_group(target.store, group, storage_options=target.storage_options),
        tell,
        partq.GroupDescription.to_dict,
        as_json=as_json,
        every_s=every if watch else None,
    )
    if found.state in BROKEN and not watch:
        raise typer.Exit(1)


# -1 is the partition of an exclusive queue.
@app.command("explain", context_settings={"ignore_unknown_options": True})
def explain(
    context: typer.Context,
    queue: QueueName,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="Number of the partition.")],
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="The consumer group. Default: each group that reads the queue.")
    ] = None,
    as_json: Json = False,
    watch: Watch = False,
    every: Every = EVERY_S,
) -> None:
    """Explain who owns a partition and why, and what its next messages wait for.

    With --group the JSON is an object; without it, it is an array with one object for each group. If the command cannot explain the
    partition for one of several groups, it says so on stderr.
    """
    target: Target = context.obj

    def look() -> _Explained:
        if group is not None:
            return _Explained([one(group)])
        from spark_partq.storage.inspect.explain import groups_to_explain  # no other command needs what it loads

        return _explained(groups_to_explain(target.opened, queue), one)

    def one(name: str) -> partq.Explanation:
        return partq.explain(target.store, queue, partition, name, storage_options=target.storage_options)

    show_or_watch(
        look,
        lambda found: found.tell(),
        lambda found: found.to_list() if group is None else found.to_list()[0],
        as_json=as_json,
        every_s=every if watch else None,
        complaints=lambda found: found.warnings,
    )


@dataclass(frozen=True)
class _Explained:
    """A partition as each group sees it; `warnings` say of which groups it cannot be explained."""

    found: list[partq.Explanation]
    warnings: list[str] = field(default_factory=list)

    def to_list(self) -> list[dict[str, Any]]:
        return [one.to_dict() for one in self.found]

    def tell(self) -> None:
        for n, one in enumerate(self.found):
            say(*([""] if n else []), *render.explanation(one))


def _explained(groups: list[str], explain_one: Callable[[str], partq.Explanation]) -> _Explained:
    """
    Raises
    ------
    PartqError
        If it can be explained of no group: the first error.
    """
    explained = _Explained([])
    first: partq.PartqError | None = None
    for name in groups:
        try:
            explained.found.append(explain_one(name))
        except partq.PartqError as error:
            first = first or error
            explained.warnings.append(f"warning: {error}")
    if first is not None and not explained.found:
        raise first
    return explained


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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the command would set, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Set the positions of a consumer group in which no query consumes; an active group is refused.

    Messages that are delivered again are marked as redelivered. A table that delta_sink writes already has their rows, and gets none twice.
    """
    target: Target = context.obj
    options = target.storage_options

    def reset(dry: bool) -> list[partq.OffsetReset]:
        return partq.reset_offsets(target.store, group, to, queue, dry, report=_tell_wait, storage_options=options)

    with interruptible(f"setting the positions of group {group}"):
        if not dry_run and not yes:
            confirm(
                f"Group {group}: {_outcome(reset(True))}. Go on?",
                f"the positions of group {group!r} were not set: not confirmed (--yes does not ask, --dry-run says what would be set)",
                group=group,
            )
        found = reset(dry_run)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    table = render.table("queue", partition="right", old="right", new="right", again="right", skipped="right")
    for one in found:
        cells = one.partition, one.old, one.new, one.again, one.skipped
        table.add_row(one.queue, *map(render.number, cells))
    show(table)
    say_prose(f"{'would set' if dry_run else 'set'} {_outcome(found)}")
    if any(one.again for one in found):
        say_prose(
            "what comes again is marked as redelivered; a table that delta_sink writes has it already, and gets nothing twice"
        )


def _outcome(resets: list[partq.OffsetReset]) -> str:
    again, skipped = sum(r.again for r in resets), sum(r.skipped for r in resets)
    return f"{count(len(resets), 'partition')}: {count(again, 'message')} come again, {count(skipped, 'message')} are skipped"


def _tell_wait(wait: partq.SessionWait) -> None:
    """So that nobody takes it for a command that hangs."""
    more = len(wait.instances) - _MOST_INSTANCES
    names = ", ".join([*wait.instances[:_MOST_INSTANCES], *([f"{more:,} more"] if more > 0 else [])])
    sessions = "session" if len(wait.instances) == 1 else "sessions"
    say_prose(
        f"waiting up to {wait.most_s:g} s for the {sessions} of {names} to end; Ctrl-C changes nothing", error=True
    )


_MOST_INSTANCES = 3


@app.command("rebalance")
def rebalance(
    context: typer.Context,
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="One group. Default: all.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Run until SIGTERM or Ctrl-C, also for groups that are created later.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(min=0.05, max=rebalancer.MAX_EVERY_S, metavar="SECONDS", help="How often to read the groups."),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Make the decisions that are due in consumer groups, as their queries do themselves.

    You need this command only if no query of a group is alive to decide: it then removes dead members, and ends handoffs and
    holddowns. Without --watch it ends as soon as each group is Ready and each member has shown a heartbeat or was removed;
    if a member has died, this takes a session timeout. It prints each decision as a line. The JSON is an array with each group;
    with --watch it is a line for each group in which the command decided something.
    """
    target: Target = context.obj
    watcher = Rebalancer(target.opened, group)
    stop = Stop()
    decided: dict[str, list[GroupFact]] = {}

    def report(name: str, facts: list[GroupFact]) -> None:
        if not as_json:
            say(*(render.fact_line(name, fact) for fact in facts))
        elif watch:
            json_line(_decided(name, facts))
        else:
            decided.setdefault(name, []).extend(facts)

    def complain(error: partq.PartqError) -> None:
        say(f"error: {error}", error=True)

    rebalancer.run(watcher, every, stop.wait, report, complain if watch else None)
    if watch:
        return
    if as_json:
        found = [(group.state, _decided(group.name, decided.get(group.name, []))) for group in watcher.groups]
        print_json([{**told, "status": state.status.value, "members": len(state.members)} for state, told in found])
    else:
        for one in watcher.groups:
            say(f"{one.name}: {one.state.status}, {count(len(one.state.members), 'member')}")
    if not watcher.settled:
        raise typer.Exit(130)


def _decided(group: str, facts: list[GroupFact]) -> dict[str, Any]:
    return {"group": group, "decisions": [asdict(fact) for fact in facts]}


@app.command("delete-group")
def delete_group(
    context: typer.Context,
    group: GroupName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Forget a consumer group and its positions, so that messages no longer wait for it; an active group is refused."""
    target: Target = context.obj
    store = target.opened  # refused before anything is asked
    if not yes:
        confirm(
            f"Group {group} in {store.uri} will forget what it has read; messages that only it has not read may be removed. Go on?",
            f"group {group!r} was not deleted: not confirmed (--yes does not ask)",
            group=group,
        )
    with interruptible(f"deleting group {group}"):
        partq.delete_group(target.store, group, report=_tell_wait, storage_options=target.storage_options)
    if as_json:
        print_json({"group": group, "deleted": True})
        return
    say_prose(f"deleted group {group}")
