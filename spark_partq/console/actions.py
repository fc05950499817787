"""The few actions that the page may do, if the console was started with actions: for each there is a command, too."""

from __future__ import annotations

import threading
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.storage.procedures import ingress, rebalance
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.procedures.reset_offsets import reset_offsets
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store

_EVERY_S = 1.0
# A rebalancer that the page starts gives up after this time: some session does not end.
_MOST_S = 600.0


class _Action(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Rebalance(_Action):
    action: Literal["rebalance"]
    group: str


class Ingress(_Action):
    action: Literal["ingress"]
    queue: str
    enabled: bool


class Reset(_Action):
    action: Literal["reset-offsets"]
    group: str
    to: str = Field(max_length=10_000)
    queues: list[str] | None = None
    dry_run: bool = True


Action = Rebalance | Ingress | Reset
_ACTION: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="action")])


class Actions:
    """Does the actions that the page asks for. May be used by several threads at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._rebalancing: set[str] = set()

    @property
    def rebalancing(self) -> list[str]:
        """The groups for which a rebalancer of the console is running."""
        with self._lock:
            return sorted(self._rebalancing)

    def do(self, body: bytes) -> dict[str, Any]:
        """Do the action that the JSON asks for, and say what was done.

        Raises
        ------
        PartqError
        """
        try:
            action = _ACTION.validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise InvalidArgumentError(f"that is no action of the console: {place}: {first['msg']}") from None
        if isinstance(action, Ingress):
            ingress.set_ingress(open_queue(self._store, action.queue), action.enabled)
            return {"done": f"ingress of queue {action.queue} is {'enabled' if action.enabled else 'disabled'}"}
        if isinstance(action, Reset):
            return self._reset(action)
        return self._rebalance(action)

    def _reset(self, action: Reset) -> dict[str, Any]:
        found = reset_offsets(self._store, action.group, action.to, action.queues, action.dry_run)
        again, skipped = sum(r.again for r in found), sum(r.skipped for r in found)
        what = f"{len(found):,} partitions: {again:,} messages come again, {skipped:,} are skipped"
        return {"done": f"{'would set' if action.dry_run else 'set'} {what}"}

    def _rebalance(self, action: Rebalance) -> dict[str, Any]:
        """Decide what is due, in a thread: if a member has died, this takes a session timeout."""
        watcher = Rebalancer(self._store, action.group)  # refuses at once a group that does not exist
        with self._lock:
            running = action.group in self._rebalancing
            self._rebalancing.add(action.group)
        if not running:
            self._store.runtime.start_thread("partq-console-rebalance", lambda: self._run(watcher, action.group))
        return {"done": f"group {action.group} is rebalanced until it is Ready; its history shows what is decided"}

    def _run(self, watcher: Rebalancer, group: str) -> None:
        runtime = self._store.runtime
        ends_s = runtime.monotonic_s() + _MOST_S

        def wait(seconds: float) -> bool:
            runtime.sleep(seconds)
            return runtime.monotonic_s() > ends_s

        try:
            rebalance.run(watcher, _EVERY_S, wait, lambda *_: None)
        finally:
            with self._lock:
                self._rebalancing.discard(group)
