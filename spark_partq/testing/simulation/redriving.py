"""Somebody cures what killed, and puts the dead messages back, as docs/dead-messages.md says for a queue that holds keys back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_partq.core.errors import SchemaMismatchError
from spark_partq.storage.procedures.alter import add_columns
from spark_partq.storage.procedures.ingress import set_ingress
from spark_partq.storage.procedures.redrive import dead_letters, redrive
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store
from spark_partq.testing.simulation.notes import COLUMN
from spark_partq.testing.simulation.process import Process
from spark_partq.testing.simulation.setup import PRIMARY

if TYPE_CHECKING:
    from spark_partq.testing.simulation.run import Run


def put_back(run: Run) -> Callable[[Process], None]:
    """Until all that is dead when producers have ended is put back; who is refused asks again."""
    producers = [f"{p.query}{'ab'[twin]}" for p in run.setup.producers for twin in range(p.twins)]

    def body(process: Process) -> None:
        while any(job.running or not job.is_done() for job in run.jobs if job.name in producers):
            process.sleep(0.5)
        while run.setup.promoted_s is not None and PRIMARY in (run.live, run.oracle.dead.live):
            process.sleep(0.5)
        run.cured = True
        store = process.store(run.live)
        if run.setup.holds:
            set_ingress(open_queue(store, "q"), False)
        run.oracle.dead.interrupted |= bool(run.oracle.dead.all_redriven)
        try:
            found = redrive(store, "q")
        except SchemaMismatchError as error:  # the dead messages of a former queue have it; do what the error says
            run.world.note(str(error))
            add_columns(open_queue(store, "q"), f"{COLUMN} string")
            found = redrive(store, "q")
        if not run.setup.discards:  # as what is put back may be, too
            _check_put_back(run, store)
        set_ingress(open_queue(store, "q"), True)
        run.world.note(f"put back: {found}")

    return body


def _check_put_back(run: Run, store: Store) -> None:
    """A redrive that says that it is done has left nothing to be placed later, behind what comes until then."""
    there = run.oracle.dead.all_redriven | run.oracle.rewritten.gone
    missing = [m.payload["id"] for m in dead_letters(store, "q") if m.redriven and m.payload["id"] not in there]
    run.oracle.fail(f"PUT BACK: {', '.join(missing)} counts as put back, and is not in the queue" if missing else "")
