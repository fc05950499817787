"""A process of a simulated world: its files, clocks and threads, and the faults that befall it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files import FileAlreadyExists, FileInfo, FileMissing, Files, Output
from spark_partq.storage.runtime import Event, Lock
from spark_partq.storage.store import Store
from spark_partq.testing.faults import CHANGES
from spark_partq.testing.simulation import relayed, results
from spark_partq.testing.simulation.oracle import Oracle
from spark_partq.testing.simulation.scheduler import (
    Actor,
    Killed,
    Scheduler,
    SimulatedEvent,
    SimulatedLock,
    in_parallel,
)
from spark_partq.testing.simulation.setup import COPY, NONE, OTHER_COPY, PRIMARY, Blow, Faults

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

# The world's clock begins at this moment, nanoseconds since 1970.
BEGINNING_NS = 1_767_225_600 * 10**9
# So long a machine stands still: the grace of maintenance is 24 hours, and after 30 days a sink that writes nothing is forgotten.
_HOURS = 2, 13, 30, 30, 30, 300
# So much later than the others it goes on, in seconds; maintenance comes meanwhile.
_BEHIND_S = 4.0


@dataclass
class Loss:
    """A store that will be lost.

    Attributes
    ----------
    after : int
        So many operations, in any store, from `from_s` on while `may_be` holds.
    """

    uri: str
    from_s: float
    after: int
    may_be: Callable[[], bool]


class World:
    """Places for stores, a clock, and the processes."""

    def __init__(self, rng: random.Random, scheduler: Scheduler, places: Callable[[str], Files], local: bool) -> None:
        self.rng, self.scheduler, self._places, self.local = rng, scheduler, places, local
        self.oracle: Oracle
        self.results, self.relayed = results.Results(), relayed.Relayed()
        self.stores: dict[str, Files] = {}
        self.unreachable: set[str] = set()
        self.durable = False
        self.loss: Loss | None = None
        self.faults = Faults()
        self.trace: list[tuple[float, str, str]] = []
        self.blows: dict[Blow, int] = {}  # those to come, each with how many operations come before it
        self.leapt_s = 0.0  # hours that passed in no time, for everybody but a machine that stood still
        self.operations = 0
        self.injected = 0
        self.changes = 0  # log entries that appeared, and folders that were deleted
        self.deletions = 0

    def files(self, uri: str) -> Files:
        if uri not in self.stores:
            self.stores[uri] = self._places(uri)
        return self.stores[uri]

    def time_ns(self) -> int:
        """By the clock of the stores."""
        return BEGINNING_NS + int((self.scheduler.now_s + self.leapt_s) * 1e9)

    def changed(self, uri: str, path: str, data: bytes) -> None:
        """A file has appeared."""
        self.changes += 1
        if uri == results.URI:
            self.oracle.fail(self.results.changed(path, data, self.oracle.copied | self.oracle.lost))
        elif uri == relayed.URI:
            self.oracle.fail(self.relayed.changed(self.files(uri), path, data, self.oracle.copied | self.oracle.lost))
        else:
            self.oracle.changed(uri, path, data)

    def folder_deleted(self, uri: str, folder: str) -> None:
        self.changes += 1
        self.deletions += 1
        self.oracle.folder_deleted(uri, folder)

    def count_towards_loss(self) -> None:
        """One more operation is about to be done."""
        loss = self.loss
        if loss is not None and self.scheduler.now_s >= loss.from_s and loss.may_be():
            loss.after -= 1
            if loss.after < 0:
                self.loss = None
                self.unreachable.add(loss.uri)
                self.injected += 1
                self.note(f"{loss.uri} is lost")

    def blow(self, process: Process, operation: str, path: str) -> str:
        """What befalls this process at its next operation, besides what may befall everybody."""
        folder = path.split("/")[:3]
        counted = {"operations": True, "commits": operation == "put_if_absent", "turns": folder != process.at}
        process.at, found = folder, ""
        for blow, left in list(self.blows.items()):
            if blow.job != process.job or self.scheduler.now_s < blow.at_s or not counted[blow.count]:
                continue
            self.blows[blow] = left - 1
            if left == 0:
                del self.blows[blow]
                found = blow.what
        return found

    def note(self, what: str) -> None:
        """A line of the trace."""
        actor = self.scheduler.current
        self.trace.append((self.scheduler.now_s, "" if actor is None else actor.name, what))


class Process:
    """A process; `storage.runtime.Runtime` for what runs in it.

    Parameters
    ----------
    fallible : bool
        Faults befall it.
    """

    def __init__(self, world: World, name: str, *, fallible: bool = True) -> None:
        self.world, self.name, self.fallible = world, name, fallible
        self.job = name.partition("#")[0]
        self.at: list[str] = []  # the folder of tables that it used last
        self.dead = False
        self.wall_offset_s = 0.0
        self.missed_s = 0.0  # so long its clock that does not go back stood still
        self.drift = 1.0
        self._upkeep: set[str] = set()

    def store(self, uri: str) -> Store:
        """A store, as this process reaches it."""
        return Store(uri, runtime=self)

    def kill(self) -> None:
        """It does nothing any more, not even end."""
        self.dead = True
        self.world.scheduler.notify()
        self.world.note(f"{self.name} is killed")

    def run(self, name: str, what: Callable[[], object]) -> Actor:
        """Let one of its threads do this."""
        label = f"{self.name}/{name}" if name else self.name
        first = any(blow.job == self.job for blow in self.world.blows)
        return self.world.scheduler.spawn(label, what, lambda: self.dead, first=first)

    # ---- the runtime
    def open_files(self, uri: str, storage_options: Mapping[str, str]) -> Files:
        return SimulatedFiles(self, uri)

    def time_ns(self) -> int:
        return self.world.time_ns() + int(self.wall_offset_s * 1e9)

    def monotonic_s(self) -> float:
        return (self.world.scheduler.now_s + self.world.leapt_s - self.missed_s) * self.drift

    def sleep(self, seconds: float) -> None:
        self.world.scheduler.wait(seconds / self.drift)

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.world.rng.getrandbits(128), version=4)

    def random(self) -> float:
        return self.world.rng.random()

    def lock(self) -> Lock:
        return SimulatedLock(self.world.scheduler)

    def event(self) -> Event:
        return SimulatedEvent(self.world.scheduler)

    def start_thread(self, name: str, run: Callable[[], object]) -> None:
        self.run(name, run)

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        jobs: list[Callable[[], B]] = [lambda item=item: function(item) for item in items]  # type: ignore[misc]
        return in_parallel(self.world.scheduler, lambda: self.dead, jobs)

    def request_upkeep(self, name: str, job: Callable[[], object]) -> None:
        if name in self._upkeep:
            return
        self._upkeep.add(name)

        def upkeep() -> None:
            self._upkeep.discard(name)
            job()

        self.run("upkeep", upkeep)


class SimulatedFiles:
    """The files of one store as one process reaches them: at each operation others may go on, and something may go wrong."""

    def __init__(self, process: Process, uri: str) -> None:
        self._process, self._world, self._uri = process, process.world, uri
        self._files = process.world.files(uri)
        self.is_local = process.world.local
        self._forces = False

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._do("put_if_absent", path, lambda: self._put_if_absent(path, data))

    def _put_if_absent(self, path: str, data: bytes) -> None:
        self._files.put_if_absent(path, data)
        self._world.changed(self._uri, path, data)

    def put(self, path: str, data: bytes) -> None:
        self._do("put", path, lambda: self._files.put(path, data))

    def read(self, path: str, most: int | None = None) -> bytes:
        return self._do("read", path, lambda: self._files.read(path, most))

    def info(self, path: str) -> FileInfo | None:
        return self._do("info", path, lambda: self._files.info(path))

    def list_files(self, folder: str, after: str = "", prefix: str = "") -> list[FileInfo]:
        return self._do("list_files", folder, lambda: self._files.list_files(folder, after, prefix))

    def list_folders(self, folder: str) -> list[str]:
        return self._do("list_folders", folder, lambda: self._files.list_folders(folder))

    def make_folder(self, folder: str) -> None:
        self._do("make_folder", folder, lambda: self._files.make_folder(folder))

    def delete(self, path: str) -> None:
        self._do("delete", path, lambda: self._files.delete(path))

    def delete_folder(self, folder: str) -> None:
        self._do("delete_folder", folder, lambda: self._delete_folder(folder))

    def _delete_folder(self, folder: str) -> None:
        self._files.delete_folder(folder)
        self._world.folder_deleted(self._uri, folder)

    def open_input(self, path: str) -> pa.NativeFile:
        return self._do("open_input", path, lambda: self._files.open_input(path))

    def open_output(self, path: str) -> Output:
        return _SimulatedOutput(self, path, self._do("open_output", path, lambda: self._files.open_output(path)))

    def force_writes(self, *, seen: bool) -> None:
        self._forces = True

    def force(self, path: str) -> None:
        pass

    def _do(self, name: str, path: str, do: Callable[[], T]) -> T:
        process, world = self._process, self._world
        if process.dead:
            raise Killed
        if world.scheduler.current is None:  # whoever sets the world up, or looks at its end
            return do()
        world.operations += 1
        blow = world.blow(process, name, path) if world.blows else ""
        if blow == "drop":
            world.note(f"drops at {name} {path}")
            world.scheduler.drop()
        world.scheduler.point()
        world.count_towards_loss()
        if self._uri in world.unreachable:
            raise _unavailable(path)
        fault = blow if blow != "drop" else ""
        if not fault and process.fallible and world.faults is not NONE:
            fault = self._fault()
        if fault:
            world.injected += 1
            world.note(f"{fault} at {name} {path}")
        if fault == "stall":
            world.scheduler.wait(world.faults.stall_s)
        elif fault == "slow":
            world.scheduler.wait(world.rng.random() * 0.05)
        elif fault == "jump":
            process.wall_offset_s = world.rng.choice((-86_400.0, -60.0, 60.0, 0.0, 365 * 86_400.0))
        elif fault == "pause":
            self._pause()
        elif fault == "kill before":
            self._kill()
        elif fault == "lost":
            raise _unavailable(path)
        try:
            result = do()
        except (FileAlreadyExists, FileMissing, StoreUnavailableError):
            if fault != "landed":
                raise
        if world.durable and name in CHANGES and not self._forces and self._uri in (PRIMARY, COPY, OTHER_COPY):
            world.oracle.fail(f"{name} {path} is not forced to the disk")
        if fault == "landed":
            raise _unavailable(path)
        if fault == "kill after":
            self._kill()
        return result

    def _pause(self) -> None:
        """The machine stands still with its clocks, before or after others have done what they can do at this moment. Then it goes on after them."""
        process, world, hours_s = self._process, self._world, 3600 * self._world.rng.choice(_HOURS)
        if world.rng.random() < 0.5:
            world.scheduler.drop()
            world.scheduler.point()
        world.leapt_s += hours_s
        process.missed_s += hours_s
        process.wall_offset_s -= hours_s
        world.scheduler.notify()
        world.scheduler.wait(_BEHIND_S)
        if world.rng.random() < 0.5:  # a time server sets it right
            process.wall_offset_s += hours_s

    def _kill(self) -> None:
        self._process.kill()
        raise Killed

    def _fault(self) -> str:
        faults, x = self._world.faults, self._world.rng.random()
        for name, chance in (
            ("lost", faults.unknown / 2),
            ("landed", faults.unknown / 2),
            ("kill before", faults.kill / 2),
            ("kill after", faults.kill / 2),
            ("stall", faults.stall),
            ("slow", faults.slow),
            ("jump", faults.jump),
        ):
            x -= chance
            if x < 0:
                return name
        return ""


class _SimulatedOutput:
    def __init__(self, files: SimulatedFiles, path: str, output: Output) -> None:
        self._files, self._path, self._output, self.sink = files, path, output, output.sink

    def close(self) -> int:
        return self._files._do("close", self._path, self._output.close)

    def discard(self) -> None:
        self._files._do("discard", self._path, self._output.discard)


def _unavailable(path: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"the simulated store gave no answer about {path}", path=path)
