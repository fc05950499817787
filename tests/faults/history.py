"""One history: a queue, producers and consumers in processes of their own, and all that must be known of them."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import spark_partq as partq
from spark_partq.spark.jobs import error_classes
from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store
from tests.committing import FOLDER as COMMITS
from tests.delivering import RESULTS
from tests.faults.machine import mount_small, unmount_small
from tests.faults.objects import ObjectStore
from tests.faults.plan import RECORDERS, WRITERS, Plan
from tests.helpers import ROOT, eventually
from tests.processes import Answer, Application, Pool
from tests.recording import Messages

T = TypeVar("T")

KEYS = 40
_LOOK_EVERY_S = 0.5
_AT_MOST_S, _AT_MOST_ON_OBJECTS_S = 120.0, 900.0  # an operation may take hundreds of requests


@dataclass
class Role:
    """A producer or a consumer: its query, in whichever application it runs at the moment."""

    name: str
    kind: str  # producer, writer, recorder
    number: int = 0  # of its checkpoint
    named: bool = False
    application: Application | None = None
    stopped: bool = False  # by a signal, or by us: nobody asks it how it is
    starting: Answer | None = field(default=None, repr=False)
    away_since: float | None = None  # when its group has no other member: nobody works until it is back

    @property
    def group(self) -> str:
        return WRITERS if self.kind == "writer" else RECORDERS


class Tail:
    """The JSON lines of a file that grows; half a line, as who is killed may leave it, is left out."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self.lines = path, 0, list[Any]()

    def read(self) -> list[Any]:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                *whole, _ = file.read().split(b"\n")
            for line in whole:
                self._at += len(line) + 1
                with contextlib.suppress(json.JSONDecodeError):
                    self.lines.append(json.loads(line))
        return self.lines


def _end_line(path: Path) -> None:
    """Behind half a line of who was killed, what the next one writes begins a line of its own."""
    if path.is_file() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


class History:
    """What runs, what has happened, and how it is waited for.

    Attributes
    ----------
    happened : Counter
        How often each thing was done.
    not_done : set of str
        What was drawn and cannot be done here, each with the reason.
    marks, in_force : list
        When faults began and ended: see `testing.progresscheck`.
    ended : list of str
        Queries that ended with an error for which there was no reason.
    objects : ObjectStore or None
        Where all stores and the table lie, if not on the disk.
    """

    def __init__(
        self,
        plan: Plan,
        pool: Pool,
        folder: Path,
        consumers: Pool | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        self.plan, self.pool, self.folder = plan, pool, folder
        self._consumers = consumers or pool
        (folder / COMMITS).mkdir(parents=True, exist_ok=True)
        self.home = folder / "store"  # where it begins
        self.objects, self._reached = objects, dict[str, Store]()
        self.small_disk = "not wanted"  # why the store has no small disk of its own; "" if it has
        if any(step.kind == "disk_full" for step in plan.steps):
            self.small_disk = mount_small(self.home) if objects is None else "the store lies in an object store"
        root = str(folder) if objects is None else objects.root
        self.store, self.results, self.table = f"{root}/store", f"{root}/results", f"{root}/table"
        self.former: list[str] = []  # stores whose place another one has taken
        columns: dict[str, Any] = {"schema": "k string, v bigint", "key": "k"}
        partq.create_queue(self.reach(self.store), "q", partitions=plan.partitions, **columns, **plan.settings)
        partq.create_queue(self.reach(self.results), RESULTS, partitions=2, **columns)
        self.happened: Counter[str] = Counter()
        self.not_done: set[str] = set()
        self.marks: list[float] = []
        self.in_force: list[tuple[float, float]] = []
        self.ended: list[str] = []
        self._excused = False
        self._looked_s = 0.0
        self._tails: dict[str, Tail] = {}
        self.operator: Application | None = None  # which runs an operation
        self._own: list[Application] = []  # applications that are in no pool
        self._names = itertools.count()
        self.roles = [Role(f"p{i}", "producer") for i in range(2)]
        kinds = ["writer"] * plan.writers + ["recorder"] * plan.recorders
        self.roles += [self.new_role(kind, named) for kind, named in zip(kinds, plan.named, strict=True)]

    def reach(self, uri: str) -> Store:
        """What lies there, as the campaign reaches it: past the faults of an object store."""
        options = None if self.objects is None else self.objects.options
        return self._reached.setdefault(uri, Store(uri, options))

    # ---- who there is
    @property
    def with_spark(self) -> bool:
        """Whether consumers run in applications that have Spark."""
        return self._consumers is not self.pool

    def new_role(self, kind: str, named: bool) -> Role:
        return Role(f"{kind[0]}{next(self._names)}", kind, named=named)

    @property
    def producers(self) -> list[Role]:
        return [role for role in self.roles if role.kind == "producer"]

    @property
    def consumers(self) -> list[Role]:
        return [role for role in self.roles if role.kind != "producer"]

    def others(self, role: Role) -> list[Role]:
        """The other consumers of its group."""
        return [other for other in self.consumers if other.group == role.group and other is not role]

    def free(self, consumer: bool = False) -> Application:
        """An application that runs nothing; another one is starting meanwhile."""
        pool = self._consumers if consumer else self.pool
        one = self._consumers is self.pool
        used = [r.application for r in self.roles if one or (r.kind != "producer") == consumer]
        return next(a for a in pool.take(len(used) + 3) if a not in [*used, self.operator])

    def own(self, variables: dict[str, str], consumer: bool = False) -> Application:
        """One that only this history has."""
        self._own.append((self._consumers if consumer else self.pool).extra(variables))
        return self._own[-1]

    # ---- start, kill, end
    def start(self, role: Role, application: Application | None = None) -> None:
        """Start its query; `look` sees that it has come up."""
        self.mark()
        role.application, role.stopped = application or self.free(role.kind != "producer"), False
        checkpoint = str(self.folder / f"cp-{role.name}-{role.number}")
        record = str(self.folder / f"{role.name}.jsonl")
        if role.kind == "producer":
            messages = self.messages_of(role)
            role.starting = role.application.tell(
                "produce", name=role.name, store=self.store, checkpoint=checkpoint, record=record, rows=messages.rows,
                keys=KEYS, every_s=self.plan.every_s, prefix=messages.prefix, values=(messages.first, messages.step),
                hold=str(self.folder / f"{role.name}.commits"),
            )  # fmt: skip
            return
        instance = f"{role.name}-{role.number}" if role.named else None
        options = {"queue": "q", "group": role.group, "instanceId": instance, "sessionTimeoutMs": self.plan.session_ms}
        given = {name: str(value) for name, value in options.items() if value is not None}
        about = {"name": role.name, "store": self.store, "checkpoint": checkpoint, "options": given, "record": record}
        if role.kind == "writer":
            targets = {"delta": self.table, "queue": self.results}
            role.starting = role.application.tell("deliver", folder=str(self.folder), targets=targets, **about)
        else:
            hold = str(self.folder / f"{role.name}.hold")
            role.starting = role.application.tell("start", every_s=0.0, hold=hold, **about)

    def messages_of(self, role: Role) -> Messages:
        """Its values are the even or the odd numbers, so that keys may be shared."""
        which = int(role.name[1:])
        return Messages("k" if self.plan.shared_keys else role.name, self.plan.rows, KEYS, which, 2)

    def kill(self, role: Role) -> None:
        """SIGKILL to its application."""
        assert role.application is not None
        self.goes(role)
        role.application.kill()
        role.application, role.starting = None, None
        for path in self.folder.glob(f"{role.name}.*"):
            _end_line(path)
        self.happened["kill -9"] += 1

    def leave(self, role: Role) -> None:
        """Its query ends behind the micro-batch that runs."""
        assert role.application is not None
        self.started(role)
        self.goes(role)
        role.stopped = True
        role.application.ask("leave", name=role.name)
        role.application = None
        self.mark()

    def started(self, role: Role) -> None:
        """Wait until its query runs."""
        if role.starting is not None:
            starting, role.starting = role.starting, None
            starting()
            self.comes(role)

    def goes(self, role: Role) -> None:
        """It does not work from now on."""
        self.mark()
        if role.kind != "producer" and not self.others(role) and role.away_since is None:
            role.away_since = self.marks[-1]

    def comes(self, role: Role) -> None:
        """It works again."""
        self.mark()
        if role.away_since is not None:
            self.in_force.append((role.away_since, self.marks[-1]))
            role.away_since = None

    def mark(self) -> None:
        self.marks.append(time.monotonic())

    @contextlib.contextmanager
    def nobody_works(self, queries_may_end: bool = True) -> Iterator[None]:
        """What happens in here lets nobody get on, and queries may end with an error."""
        began, self._excused = time.monotonic(), self._excused or queries_may_end
        try:
            yield
        finally:
            self.in_force.append((began, time.monotonic()))

    # ---- what is seen
    def look(self, at_once: bool = False) -> None:
        """Start again what has ended, as a supervisor does; not more often than needed, unless `at_once`."""
        if not at_once and time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = time.monotonic()
        for role in self.roles:
            if role.application is None or role.stopped:
                continue
            error = self._error(role, role.application)
            if error is not None:
                what = error.partition("]")[0].strip("[")[:60]
                self.happened[f"ended: {what}"] += 1
                if not self._excused and not self._is_late(error):
                    self.ended.append(f"{role.name} ended: {error}")
                assert len(self.ended) < 20, f"queries do not stay up: {self.ended[-1]}"
                self.start(role, role.application)

    def _error(self, role: Role, application: Application) -> str | None:
        """With which its query has ended, or has not even begun."""
        if role.starting is not None and not role.starting.there():
            return None
        try:
            self.started(role)
        except AssertionError as error:
            return str(error)
        found: str | None = application.ask("status", name=role.name)["error"]
        return found

    def _is_late(self, error: str) -> bool:
        """On a busy machine a query may miss the time that Spark gives its planner; that is no error of ours."""
        return self.with_spark and not any(f"[{name}]" in error for name in error_classes())

    def queries_ended(self) -> int:
        """How many have ended with an error."""
        return sum(count for what, count in self.happened.items() if what.startswith("ended"))

    def until(self, condition: Callable[[], T], what: str, timeout_s: float | None = None) -> T:
        if timeout_s is None:
            timeout_s = _AT_MOST_S if self.objects is None else _AT_MOST_ON_OBJECTS_S

        def held() -> T:
            self.look()
            return condition()

        return eventually(held, what, timeout_s, 0.1)

    def lines(self, file: str) -> list[Any]:
        """What is in one of its files by now."""
        return self._tails.setdefault(file, Tail(self.folder / file)).read()

    def batches(self, producer: Role) -> list[tuple[int, float, float]]:
        """The micro-batches that it was told are in."""
        return [tuple(line) for line in self.lines(f"{producer.name}.jsonl") if len(line) == 3]

    def records(self, group: str) -> list[dict[str, Any]]:
        """Of all consumers that the group ever had."""
        letter = "w" if group == WRITERS else "r"
        paths = sorted(self.folder.glob(f"{letter}[0-9]*.jsonl"))
        return [record for path in paths for record in self.lines(path.name)]

    def commits(self, group: str) -> list[dict[str, Any]]:
        """What its members, and whoever else decided for it, invoked on its tables, and what came of that (`tests.committing`)."""
        lines = [line for path in sorted((self.folder / COMMITS).glob("*.jsonl")) for line in Tail(path).read()]
        mine = {line["id"] for line in lines if line.get("group") == group}
        return [line for line in lines if line["id"] in mine]

    def facts(self, group: str, store: str | None = None) -> list[dict[str, Any]]:
        found = Group(self.reach(store or self.store), group)
        if not found.exists():
            return []
        found.refresh()
        since_boot_s = time.time() - time.monotonic()
        return [{**fact, "at_s": fact["at"].timestamp() - since_boot_s} for fact in found.history()]

    def has_left(self, group: str) -> Callable[[], bool]:
        """Whether any member of the group leaves or expires from now on."""
        since = len([f for f in self.facts(group) if f["kind"] == "MemberLeft"])
        return lambda: len([f for f in self.facts(group) if f["kind"] == "MemberLeft"]) > since

    def flows(self) -> None:
        """Wait until every producer and both groups have got on since; from then on no query may end any more."""
        since = time.monotonic()

        def produced() -> bool:
            return all(any(began > since for _, began, _ in self.batches(p)[-3:]) for p in self.producers)

        self.until(produced, "a micro-batch of each producer")
        for group in (WRITERS, RECORDERS):
            self.until(lambda group=group: self._finished(group, since), f"progress of {group}")  # type: ignore[misc]
        self.look(at_once=True)  # a query that ended before this moment is excused
        self._excused = False

    def _finished(self, group: str, since: float) -> bool:
        letter = "w" if group == WRITERS else "r"
        names = {path.stem for path in self.folder.glob(f"{letter}[0-9]*.jsonl")}
        return any("end" in self.kinds_since(name, since) for name in names)

    def kinds_since(self, consumer: str, since: float) -> set[str]:
        """What kinds of records it has made since."""
        newest = itertools.takewhile(lambda r: r["at"] > since, reversed(self.lines(f"{consumer}.jsonl")))
        return {r["kind"] for r in newest}

    # ---- the end
    def finish(self) -> None:
        """Producers write what is left and leave; then the groups finish everything."""
        least = -(-self.plan.messages // (2 * self.plan.rows))
        self.until(lambda: all(len(self.batches(p)) >= least for p in self.producers), "all messages", 600)
        for role in self.producers:
            self.leave(role)
        self.until(lambda: partq.describe_queue(self.reach(self.store), "q").depth == 0, "the end of the work")

    def close(self, whole: bool, keep: bool) -> None:
        """Let nothing run on; if the history is not whole, keep no application, either."""
        for application in [role.application for role in self.roles if role.application] + self._own:
            application.cont()
        for role in self.roles:
            with contextlib.suppress(AssertionError):
                self.started(role)  # or it might come up behind `clear`
        for pool in {self.pool, self._consumers}:
            if whole:
                pool.clear()
            else:  # they might not answer
                pool.close()
        for application in self._own:
            if not application.killed:
                application.kill()
        if not self.small_disk:
            unmount_small(self.home, keep)
        if self.objects is not None and keep:
            self.objects.keep(self.folder / "objects")

    def explain(self) -> str:
        """Logs of the applications and the last facts of each group."""
        told = [f"--- {role}\n{role.application.log()[-1500:]}" for role in self.roles if role.application]
        shown = ("seq", "kind", "partition", "offset", "epoch", "flow", "to_flow", "instance", "status", "cause", "by")
        for group in (WRITERS, RECORDERS):
            with contextlib.suppress(partq.PartqError):
                told += [f"--- {group}"]
                told += [" ".join(str(f[c]) for c in shown if f[c] is not None) for f in self.facts(group)[-40:]]
        return "\n".join([f"python -m tests.faults --seed {self.plan.seed} ({ROOT.name})", *told])
