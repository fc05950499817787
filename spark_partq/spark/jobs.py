"""What the jobs in `jobs/` share: stopping, and reporting refusals."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from pyspark import SparkContext
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_partq.core.errors import PartqError, StoreUnavailableError
from spark_partq.core.queue.facts import Mode

BatchFunction = Callable[[DataFrame, int], None]

# Options that several jobs and commands have.
StoreUri = Annotated[str, typer.Option(help="Folder or URI of the store.")]
TargetQueue = Annotated[str, typer.Option(help="Queue to write into.")]
Group = Annotated[
    str, typer.Option(help="Consumer group; its jobs share the partitions. The store keeps its positions.")
]
Checkpoint = Annotated[str, typer.Option(help="Folder or URI of this stream's checkpoint.")]
Flows = Annotated[int, typer.Option(min=1, help="Flows that share the partitions: the tasks of a micro-batch.")]
MaxMessages = Annotated[int | None, typer.Option(min=1, help="Maximum number of messages in a micro-batch.")]
ReadOptions = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Another option of the queue's source; may be repeated.")
]
KafkaServers = Annotated[str, typer.Option(metavar="HOST:PORT,…", help="Brokers of the Kafka cluster.")]
KafkaOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE|@FILE",
        help="Option of Spark's Kafka connector, such as kafka.security.protocol=SASL_SSL, or a file with one per line; may be repeated. Other users of "
        "this machine see arguments, so put secrets into a file.",
    ),
]
Trigger = Annotated[
    str,
    typer.Option(
        "--trigger",
        help="available-now: read what is there now, then end. continuous: as fast as possible, for ever. "
        '"10 seconds": a micro-batch that often.',
    ),
]
ScalingMode = Annotated[
    Mode,
    typer.Option(
        help="live: producers and consumers go on. drain: disable ingress, wait until all is read, change the count, enable "
        "ingress. delete: lose the messages that are left in the partitions to be removed."
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE|@FILE",
        envvar="SPARK_PARTQ_STORAGE_OPTIONS",
        help="Storage option of the store, such as aws_region=eu-west-1, or a file with one per line; may be repeated. Other users of this machine "
        "see arguments, so put secrets into a file or the environment.",
    ),
]

ToOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE|@FILE",
        envvar="SPARK_PARTQ_TO_OPTIONS",
        help="Storage option of the replicas' stores, or a file with one per line; may be repeated.",
    ),
]

# How long a micro-batch may go on after the job was told to stop. Most schedulers kill a job after 30 s.
GRACE_S = 20.0
_STOP, _ENDED = "stop", "ended"


class Stop:
    """Turns SIGTERM and SIGINT into a polite end of the job.

    The job finishes the running micro-batch and begins no other. A second signal ends the job at once, as does the end of `GRACE_S`.
    The next start then repeats the micro-batch that was interrupted.
    """

    def __init__(self) -> None:
        # Signal handlers may put into a SimpleQueue whatever the interrupted thread is doing; an Event could deadlock.
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = threading.Event()
        if _under_spark_submit():
            # Under spark-submit the JVM, which is the parent of this process, gets the signals. On Ctrl-C both processes get it.
            _on_jvm_signals(lambda: self._events.put(_STOP))
            self._on_signal: Callable[[], None] = lambda: None
        else:
            self._on_signal = lambda: self._events.put(_STOP)
        _on_signals(self._on_signal)

    def gated(self, function: BatchFunction) -> BatchFunction:
        """`function` for ``foreachBatch``, which begins no micro-batch once the job was told to stop."""

        def gate(batch: DataFrame, batch_id: int) -> None:
            if self._stopping.is_set():
                raise InterruptedError(f"micro-batch {batch_id} is left to the next start")
            function(batch, batch_id)

        return gate

    def wait(self, seconds: float) -> bool:
        """Wait this many seconds. As soon as the job is told to stop, return True."""
        with contextlib.suppress(queue.Empty):
            self._events.get(timeout=seconds)
            return True
        return False

    def run(self, query: StreamingQuery) -> None:
        """Wait until the query ends, by itself or because the job is told to stop.

        Raises
        ------
        StreamingQueryException
            If the query failed by itself.
        """
        _on_signals(self._on_signal)  # a new session puts a handler of its own for SIGINT in place
        threading.Thread(target=self._watch, args=(query,), daemon=True).start()
        stop_requested = self._events.get() == _STOP
        if stop_requested:
            self._stopping.set()
            self._finish_batch(query)
            query.stop()
        error = query.exception()
        if error is not None and not stop_requested and not self.wait(0):
            raise error

    def _watch(self, query: StreamingQuery) -> None:
        with contextlib.suppress(Exception):  # `run` asks the query for its error
            query.awaitTermination()
        self._events.put(_ENDED)

    def _finish_batch(self, query: StreamingQuery) -> None:
        before = _batches_done(query)
        until = time.monotonic() + GRACE_S
        while query.isActive and _is_busy(query) and _batches_done(query) == before and time.monotonic() < until:
            if self.wait(0.05):
                return


def _is_busy(query: StreamingQuery) -> bool:
    status = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def _batches_done(query: StreamingQuery) -> int:
    progress: Any = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _on_signals(action: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: action())


def _under_spark_submit() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _gateway() -> Any:
    SparkContext._ensure_initialized()  # connects to the JVM that exists; makes no context
    return SparkContext._gateway


def _on_jvm_signals(action: Callable[[], None]) -> None:
    class Handler:
        def handle(self, _: object) -> None:
            action()

        class Java:
            implements: ClassVar[list[str]] = ["sun.misc.SignalHandler"]

    gateway = _gateway()
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    jvm: Any = gateway.jvm
    for name in ("TERM", "INT"):
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal(name), Handler())


def main(command: Callable[..., None]) -> None:
    """Run a job's command: exit code 0 done, 1 refused (one line on stderr), 2 wrong usage."""
    # py4j logs every error of a foreachBatch function with its traceback; the same error arrives here, too.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        parser(command)()
    except Exception as error:
        message = refusal(error)
        if message is None:
            raise
        tell(f"error: {message}")
        sys.exit(1)


def parser(command: Callable[..., None]) -> typer.Typer:
    """The parser that reads the arguments of a job and calls its command."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    app.command(help="\n\n".join(" ".join(text.split()) for text in paragraphs))(command)
    return app


def tell(message: str) -> None:
    """Write a line to stderr."""
    if not _under_spark_submit():
        print(message, file=sys.stderr)
        return
    # spark-submit sends to stdout what the Python process of a driver writes to stderr.
    jvm: Any = _gateway().jvm
    jvm.java.lang.System.err.println(message)


def refusal(error: BaseException) -> str | None:
    """``[CLASS] message`` of a refused request, in one line; None for any other error.

    Spark wraps our errors from its Python workers and callbacks, as text, into its own errors.
    """
    if isinstance(error, PartqError):
        return _one_line(str(error))
    if isinstance(error, PySparkException):
        found = re.search(rf"\[(?:{'|'.join(error_classes())})\] [^\n]*", str(error))
        if found:
            return found[0].strip()
        if isinstance(error, (AnalysisException, IllegalArgumentException)):
            return _one_line(str(error).split("\n\nJVM stacktrace")[0].split(";\n")[0])
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def error_classes() -> list[str]:
    classes: list[type[PartqError]] = [
        PartqError,
        *PartqError.__subclasses__(),
        *StoreUnavailableError.__subclasses__(),
    ]
    return sorted(cls.error_class for cls in classes)


def key_values(pairs: list[str] | None) -> dict[str, str]:
    """``["a=1", "b=x=y"]`` as ``{"a": "1", "b": "x=y"}``; ``@FILE`` stands for the lines of a file. Anything else is wrong usage."""
    values = {}
    for place, pair in _pairs(pairs or []):
        name, equals, value = pair.partition("=")
        if not name or not equals:  # it may be a secret, so the error does not show it
            raise typer.BadParameter(f"{place} is not of the form name=value")
        values[name] = value
    return values


def _pairs(given: list[str]) -> Iterator[tuple[str, str]]:
    """Each ``name=value``, and where it stands."""
    for pair in given:
        if not pair.startswith("@"):
            yield "an argument", pair
            continue
        try:
            lines = Path(pair[1:]).read_text().splitlines()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise typer.BadParameter(f"file {pair[1:]} cannot be read: {reason}") from None
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                yield f"line {number} of {pair[1:]}", line.strip()


def trigger(text: str) -> dict[str, Any]:
    """Arguments of ``writeStream.trigger`` for ``available-now``, ``continuous`` or an interval."""
    if text == "available-now":
        return {"availableNow": True}
    if text == "continuous":
        return {"processingTime": "0 seconds"}
    if re.fullmatch(r"\d+ (millisecond|second|minute|hour)s?", text):
        return {"processingTime": text}
    raise typer.BadParameter(f'{text!r} is none of available-now, continuous, an interval such as "10 seconds"')
