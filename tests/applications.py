"""Real applications: driver processes that are told what to run, one JSON object a line.

`tests.drivers` is what they run. A `plain` one starts at once; one of `spark` has a JVM of its own, which takes many seconds and much of the
processors. A scenario is the same for both, so each is shown with plain applications, and a few of them with Spark.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_partq.core.group.facts import Status
from spark_partq.core.ids import instance_of
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from spark_partq.testing.checker import Report, check
from tests.helpers import eventually, new_file, opened
from tests.processes import Application, Pool
from tests.recording import whole_lines


class Scenario:
    """One queue `q`, one group, and the applications that consume it."""

    def __init__(self, pool: Pool, folder: Path, partitions: int, group: str = "g", **settings: Any) -> None:
        import spark_partq as partq

        self.pool, self.folder, self.store = pool, folder, str(folder / "store")
        partq.create_queue(self.store, "q", "k string, v bigint", key="k", partitions=partitions, **settings)
        self._tables: list[PartitionTable] = opened(self.store).partitions
        self.sent: dict[tuple[str, int], list[str]] = {("q", p): [] for p in range(partitions)}
        self.sent_at: dict[tuple[str, int], list[float]] = {("q", p): [] for p in range(partitions)}
        self._group = Group(Store.at(self.store), group)
        self._where: dict[str, Application] = {}
        self._started: dict[str, Callable[[], Any]] = {}
        self.names: dict[str, str] = {}  # by instance

    # ---- messages
    def send(self, partition: int, *keys: str) -> None:
        """One message of each key, in one commit."""
        place = ("q", partition)
        first = len(self.sent[place])
        columns: dict[str, Sequence[Any]] = {"k": keys, "v": range(first, first + len(keys))}
        self._tables[partition].append([new_file(self.store, "q", partition, columns)], None)
        self.sent[place] += keys
        self.sent_at[place] += [time.monotonic()] * len(keys)

    def send_all(self, count: int = 1) -> None:
        for _, partition in self.sent:
            self.send(partition, *[f"key-{partition}"] * count)

    @contextlib.contextmanager
    def sending(self, every_s: float = 0.15) -> Iterator[None]:
        """Messages to all partitions, again and again."""
        over = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                while not over.wait(every_s):
                    self.send_all()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert not failed, failed

    # ---- consumers
    def hold(self, name: str) -> Path:
        """While this file is there, no micro-batch of the query ends."""
        return self.folder / f"{name}.hold"

    def start(
        self,
        application: Application,
        name: str,
        *,
        static: bool = False,
        every_s: float = 0.0,
        checkpoint: str = "",
        **options: Any,
    ) -> Callable[[], None]:
        """Start a query that is called `name` here; what it returns waits until it has joined.

        Only a `static` one has an instance id of ours. Those of the others are learnt when they join, so wait for each before the
        next is started.
        """
        self._where[name] = application
        options = {"queue": "q", "group": self._group.name, "instanceId": name if static else None, **options}
        since = self.seq
        self._started[name] = application.tell(
            "start", name=name, store=self.store, checkpoint=str(self.folder / (checkpoint or f"cp-{name}")),
            record=str(self.folder / f"{name}.jsonl"), every_s=every_s, hold=str(self.hold(name)),
            options={o: str(v) for o, v in options.items() if v is not None},
        )  # fmt: skip

        def joined() -> None:
            self._is_started(name)
            try:
                facts = eventually(lambda: self.history("MemberJoined", since=since), f"the join of {name}")
            except AssertionError:
                raise AssertionError(f"{name} did not join:\n{self.explain()}") from None
            if not static:
                name_of = next(f["instance"] for f in facts if self.names.get(f["instance"], name) == name)
                self.names[name_of] = name

        return joined

    def _is_started(self, name: str) -> None:
        answer = self._started.pop(name, None)
        if answer is not None:
            answer()

    def instance(self, name: str) -> str:
        """Its instance id."""
        return next((i for i, n in self.names.items() if n == name), name)

    def let_go(self) -> None:
        """Hold no micro-batch any longer."""
        for path in self.folder.glob("*.hold"):
            path.unlink()

    def acknowledge(self, name: str, offsets: Mapping[int, int], epochs: Mapping[int, int] | None = None) -> list[Any]:
        """What the application of this query acknowledges by hand; the partitions that were refused."""
        refused: list[Any] = self._where[name].ask(
            "acknowledge", store=self.store, group=self._group.name, offsets=[("q", *x) for x in offsets.items()],
            epochs=[("q", *x) for x in (epochs or {}).items()],
        )  # fmt: skip
        return refused

    def listen(self, application: Application, name: str) -> None:
        application.ask("listen", group=self._group.name, record=str(self.folder / f"{name}.listener"))

    def listener_calls(self, name: str) -> list[list[Any]]:
        """What was said, to whom it was said, when: ``["revoked", [1, 2], 17.0]``."""
        return whole_lines(self.folder / f"{name}.listener")

    def stop(self, name: str) -> None:
        self._where[name].ask("stop", name=name)

    def leave(self, name: str) -> Callable[[], None]:
        return self._where[name].tell("leave", name=name)

    def failed(self, name: str) -> str:
        """The error with which the query ends."""
        self._is_started(name)
        return str(eventually(lambda: self._where[name].ask("status", name=name)["error"], f"the end of {name}"))

    # ---- what is there
    def records(self, *names: str) -> list[dict[str, Any]]:
        paths = [path for path in sorted(self.folder.glob("*.jsonl")) if not names or path.stem in names]
        return [record for path in paths for record in whole_lines(path)]

    def rows(self, *names: str) -> list[dict[str, Any]]:
        return [r for r in self.records(*names) if r["kind"] == "row"]

    def places(self, *names: str) -> list[tuple[int, int]]:
        """(partition, offset) of each row, in the order of delivery."""
        return [(r["partition"], r["offset"]) for r in self.rows(*names)]

    @property
    def group(self) -> Group:
        if self._group.exists():
            self._group.refresh()
        return self._group

    def owners(self) -> dict[int, str | None]:
        return {p: own.flow for (_, p), own in sorted(self.group.state.partitions.items())}

    def loads(self) -> dict[str, list[int]]:
        """Partitions of each query, by our names."""
        found: dict[str, list[int]] = {}
        for partition, flow in self.owners().items():
            instance = instance_of(flow or "/")
            found.setdefault(self.names.get(instance, instance), []).append(partition)
        return found

    def counts(self) -> dict[str, int]:
        return {instance: len(mine) for instance, mine in self.loads().items()}

    def history(self, *kinds: str, since: int = 0) -> list[dict[str, Any]]:
        facts = self.group.history() if self._group.exists() else []
        return [f for f in facts if f["seq"] >= since and (not kinds or f["kind"] in kinds)]

    @property
    def seq(self) -> int:
        return self.group.state.seq

    def is_ready(self) -> bool:
        state = self.group.state
        return state.status is Status.READY and bool(state.members)

    def settled(self, expected: Mapping[str, int], timeout_s: float = 60.0) -> None:
        """Wait until the group is Ready with so many partitions per instance."""
        try:
            eventually(lambda: self.is_ready() and self.counts() == expected, "", timeout_s)
        except AssertionError:
            raise AssertionError(
                f"{self.counts()} instead of {expected}, {self.group.state.status}:\n{self.explain()}"
            ) from None

    def explain(self) -> str:
        """The last facts and the logs of the applications, for an error message."""
        shown = ("seq", "kind", "partition", "offset", "epoch", "flow", "to_flow", "instance", "status", "cause", "by")
        facts = [" ".join(str(f[c]) for c in shown if f[c] is not None) for f in self.history()[-60:]]
        logs = [f"--- {name}\n{a.log()[-1500:]}" for name, a in self._where.items()]
        with contextlib.suppress(AssertionError):
            logs += [f"--- {name}: {a.ask('status', name=name)}" for name, a in self._where.items() if not a.killed]
        return "\n".join([*facts, *logs])

    def delivered(self, *names: str, places: Iterable[tuple[int, int]] | None = None) -> None:
        """Wait until these consumers together have had these messages, or all that were sent."""
        wanted = set(places) if places is not None else self._all()
        try:
            eventually(lambda: wanted <= set(self.places(*names)), "")
        except AssertionError:
            missing = sorted(wanted - set(self.places(*names)))
            raise AssertionError(f"not delivered to {names or 'anybody'}: {missing[:20]}\n{self.explain()}") from None

    def _all(self) -> set[tuple[int, int]]:
        return {(p, offset) for (_, p), keys in self.sent.items() for offset in range(len(keys))}

    def acknowledged(self) -> None:
        """Wait until the group wants nothing any more."""
        wanted = {p: len(keys) for (_, p), keys in self.sent.items()}
        try:
            eventually(lambda: self.positions() == wanted, "")
        except AssertionError:
            raise AssertionError(f"{self.positions()} acknowledged of {wanted}\n{self.explain()}") from None

    def positions(self) -> dict[int, int]:
        group = self.group
        return {partition_id[1]: group.position(partition_id) or 0 for partition_id in group.state.partitions}

    def check(self, *, manual: bool = False, acknowledged: bool = True) -> Report:
        """Wait for the end of the work and check all that was delivered: nothing lost, order kept, nothing twice unless allowed."""
        self.delivered()
        if acknowledged:
            self.acknowledged()
        positions = {("q", p): offset for p, offset in self.positions().items()}
        report = check(self.records(), self.history(), self.sent, positions, manual=manual)
        assert report.ok, f"{report}\n{self.explain()}"
        return report
