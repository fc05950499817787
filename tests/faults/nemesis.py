"""What is done to the processes of a history: each step a function of the history and of what it draws."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.delivering import after_commit, before_commit
from tests.faults.history import History, Role
from tests.processes import MASTER, python_workers

_HELD_WITHIN_S = 15.0
_ONE_EXECUTOR = "local-cluster[1,1,1024]"  # workers, cores, MiB
_OPERATIONS = ("scale", "maintain", "replicate")


# ---- kill -9
def kill(h: History, rng: Random) -> str:
    """A producer, a consumer, what an operator runs, or everybody at once."""
    return rng.choices([kill_producer, kill_consumer, kill_operator, kill_all], [6, 10, 4, 1])[0](h, rng)


def kill_producer(h: History, rng: Random) -> str:
    """With its files written, between the commits of two partitions, or anywhere; it writes the same micro-batch again."""
    role, commits = rng.choice(h.producers), rng.choice([0, 1, 2, None])
    hold = h.folder / f"{role.name}.commits"
    if commits is None:
        h.started(role)
        time.sleep(rng.uniform(0, 2 * h.plan.every_s))  # anywhere
        h.kill(role)
    else:
        name = f"{role.name}.jsonl"
        held = hold_up(h, role, hold, lambda: [line for line in h.lines(name) if line == ["held"]], str(commits))
        h.kill(role)
        hold.unlink()
    h.start(role)
    return "producer " + ("anywhere" if commits is None or not held else f"behind {commits} commits")


def kill_consumer(h: History, rng: Random) -> str:
    """Before the commit of its results, behind it and before its micro-batch has ended, or anywhere."""
    role, fresh = rng.choice(h.consumers), rng.random() < 0.3
    hold, said = _hold(h, role, rng)
    if hold is None:
        h.started(role)
        time.sleep(rng.uniform(0, 1))  # anywhere
        h.kill(role)
    else:
        held = hold_up(h, role, hold, said)
        h.kill(role)
        hold.unlink()
    role.number += fresh
    h.start(role)
    where = "anywhere" if hold is None or not held else hold.suffix[1:]
    return f"{role.kind} {where}, {'a fresh' if fresh else 'the same'} checkpoint"


def kill_executor(h: History, rng: Random) -> str:
    """The Python workers of an executor, and then it: Spark runs their tasks again, and the query goes on. The consumer begins again in an
    application that has an executor.
    """
    if not h.with_spark:
        h.not_done.add("kill_executor: consumers run without Spark")
        return "not done"
    role = rng.choice(h.consumers)
    h.leave(role)
    application = h.own({MASTER: _ONE_EXECUTOR}, consumer=True)
    h.start(role, application)
    h.started(role)
    for processes in (lambda: [w for e in application.executors() for w in python_workers(e)], application.executors):
        since = time.monotonic()
        h.until(lambda since=since: "start" in h.kinds_since(role.name, since), f"a micro-batch of {role.name}")  # type: ignore[misc]
        time.sleep(rng.uniform(0, 1))  # anywhere
        for process in h.until(processes, f"processes of Spark of {role.name}"):
            process.kill()
            h.happened["kill -9"] += 1
        h.mark()
    return role.kind


def kill_all(h: History, rng: Random) -> str:
    """As when the machine of all applications is lost, and not that of the store."""
    with h.nobody_works():
        for role in h.roles:
            h.kill(role)
        for role in h.roles:
            h.start(role)
        for role in h.roles:
            h.started(role)
    return ""


def _hold(h: History, role: Role, rng: Random) -> tuple[Path | None, Callable[[], list[Any]]]:
    """A file that holds the consumer up, and how it is seen that it is held up."""
    if role.kind == "writer":
        hold = rng.choice([before_commit(h.folder, role.name), after_commit(h.folder, role.name), None])
        return hold, lambda: [x for x in h.lines(f"{role.name}.delivery") if hold and x == ["held", hold.suffix[1:]]]
    name = f"{role.name}.jsonl"
    return rng.choice([h.folder / f"{role.name}.hold", None]), lambda: [r for r in h.lines(name) if r["kind"] == "row"]


def hold_up(h: History, role: Role, hold: Path, said: Callable[[], list[Any]], text: str = "") -> bool:
    """Put the file, and wait until it is held up; a consumer that has no partition, or none with messages, never is."""
    before = len(said())
    written = hold.with_suffix(".new")
    written.write_text(text)
    written.rename(hold)
    with contextlib.suppress(AssertionError):
        h.until(lambda: len(said()) > before, f"{role.name} to be held up", _HELD_WITHIN_S)
        return True
    return False


def operation(h: History, rng: Random) -> tuple[str, dict[str, Any]]:
    """What an operator may run at any time."""
    function = rng.choice(_OPERATIONS)
    about: dict[str, Any] = {"store": h.store}
    if function == "scale":
        about["partitions"] = rng.randint(3, 8)
    elif function == "maintain":
        about["grace_ms"] = 20_000
    else:
        about |= {"queue": "q", "location": standby(h)}
    return function, about


def standby(h: History) -> str:
    """The store that follows the one in use."""
    above, _, name = h.store.rpartition("/")
    return f"{above}/standby-of-{name}"


def operate(
    h: History,
    function: str,
    about: dict[str, Any],
    rng: Random | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Run an operation to its end, while something else happens; with `rng` kill a process that runs it first, and count whether it had ended."""
    if rng is not None:
        application = h.free()
        application.ask("clear")  # it is up
        killed = application.tell("run", function=function, arguments=about)
        time.sleep(rng.uniform(0, 0.5))  # anywhere
        h.happened[f"{function} killed {'after' if killed.there() else 'before'} its end"] += 1
        application.kill()
        h.mark()
        h.happened["kill -9"] += 1
    h.operator = h.free()
    answer = h.operator.tell("run", function=function, arguments=about)
    meanwhile()
    h.until(answer.there, function)
    answer()
    h.operator = None
    h.happened[function] += 1
    h.mark()


def kill_operator(h: History, rng: Random) -> str:
    function, about = operation(h, rng)
    operate(h, function, about, rng)
    return function


# ---- SIGSTOP
def stop(h: History, rng: Random) -> str:
    """Whoever stands still goes on after its session has expired."""
    return rng.choices([stop_consumer, stop_producer, stop_operator], [6, 2, 2])[0](h, rng)


def stop_consumer(h: History, rng: Random) -> str:
    """A zombie: the others have its partitions, and have got on, when it goes on."""
    role = rng.choice(h.consumers)
    hold, said = _hold(h, role, rng)
    if hold is not None:
        held = hold_up(h, role, hold, said)
    else:
        h.started(role)
    left = h.has_left(role.group)
    _freeze(h, role)
    began = time.monotonic()
    if h.others(role):
        # It may have stood still before it had joined; then nobody has to leave.
        h.until(lambda: left() or time.monotonic() > began + 4 * h.plan.session_ms / 1000, "the end of a session")
        h.until(lambda: _got_on(h, role, began), f"progress of the others of {role.name}")
    else:  # nobody is there to notice; it comes back to its own session
        h.until(lambda: time.monotonic() > began + 1.5 * h.plan.session_ms / 1000, "a while")
    if hold is not None:
        hold.unlink()
    _thaw(h, role)
    return f"{role.kind} {'anywhere' if hold is None or not held else hold.suffix[1:]}"


def _got_on(h: History, role: Role, since: float) -> bool:
    """Whether another one has begun and finished a micro-batch."""
    return any(h.kinds_since(other.name, since) >= {"start", "end"} for other in h.others(role))


def stop_producer(h: History, rng: Random) -> str:
    role = rng.choice(h.producers)
    h.started(role)
    _freeze(h, role)
    until = time.monotonic() + rng.uniform(1, 2) * h.plan.session_ms / 1000
    h.until(lambda: time.monotonic() > until, "a while")
    _thaw(h, role)
    return "producer"


def stop_operator(h: History, rng: Random) -> str:
    """Another process does the same meanwhile; what the first one says when it goes on does not count."""
    function, about = operation(h, rng)
    application = h.own({})
    application.ask("clear")  # it is up
    application.tell("run", function=function, arguments=about)
    time.sleep(rng.uniform(0, 0.5))  # anywhere
    application.stop_signals()
    h.mark()
    h.happened["SIGSTOP"] += 1
    operate(h, function, about)
    application.cont()
    h.mark()
    return function


def _freeze(h: History, role: Role) -> None:
    assert role.application is not None
    h.goes(role)
    role.stopped = True
    role.application.stop_signals()
    h.happened["SIGSTOP"] += 1


def _thaw(h: History, role: Role) -> None:
    assert role.application is not None
    role.application.cont()
    role.stopped = False
    h.comes(role)


# ---- members
def leave(h: History, rng: Random) -> str:
    """A consumer leaves and another one joins, and somebody asks for what is due to be decided."""
    role = rng.choice(h.consumers)
    joins = h.new_role(role.kind, rng.random() < 0.5)
    h.leave(role)
    joins.away_since = role.away_since
    h.roles[h.roles.index(role)] = joins
    if rng.random() < 0.5:
        operate(h, "rebalance", {"store": h.store, "group": role.group})
    h.start(joins)
    return role.kind
