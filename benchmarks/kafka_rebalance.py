"""What a join, a leave and a crash cost the consumers of one queue, and those of a Kafka topic: ``python -m benchmarks.kafka_rebalance``.

Kafka's are its plain Java consumers with each of its three protocols; ours are planners without Spark, which do what a query's driver does and read
what they have planned, so what Spark needs for a micro-batch is left out but for its least time. Each consumer is a process of its own, and is there before it joins. A steady producer writes one message after another to
every partition, the partitions taking turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

import spark_partq as partq
from benchmarks.broker import Broker
from benchmarks.data import session
from benchmarks.maven import java
from benchmarks.rebalance_group import Cost, Members, System
from benchmarks.report import Figure, known, median
from benchmarks.report import show as show_figures

KAFKA = "org.apache.kafka:kafka_2.13:4.4.0"  # the newest; its broker knows all three protocols
SOURCE = Path(__file__).parent / "java" / "KafkaRebalance.java"
ASSIGNORS = "org.apache.kafka.clients.consumer"
PARTITIONS, MEMBERS, TICKS = 64, 4, 10
EVENTS = ("join", "leave", "crash")
SMALL = ("-Xmx256m", "-XX:+UseSerialGC")  # of each JVM of a consumer or producer
Make = Callable[[str], System]


def main(
    runs: Annotated[int, typer.Option(help="runs of each event in each system", min=1)] = 5,
    session_ms: Annotated[int, typer.Option(help="time-out of a consumer's session")] = 6000,
    heartbeat_ms: Annotated[int, typer.Option(help="between heartbeats of a consumer of Kafka")] = 300,
    every_ms: Annotated[int, typer.Option(help="between two messages of a partition")] = 1000,
    batch_ms: Annotated[int, typer.Option(help="of a micro-batch of ours, as Spark's take some time")] = 200,
    calm_s: Annotated[float, typer.Option(help="of usual work before each event, to compare with")] = 6.0,
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("benchmarks/results/kafka_rebalance.json"),
) -> None:
    """Prints medians and ranges; there are no bounds."""
    spark = session()
    broker_settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": min(session_ms, 6000),
        "group.consumer.min.session.timeout.ms": session_ms,
        "group.consumer.session.timeout.ms": session_ms,
        "group.consumer.min.heartbeat.interval.ms": heartbeat_ms,
        "group.consumer.heartbeat.interval.ms": heartbeat_ms,
    }
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as place:
        folder = Path(place)
        broker = Broker(spark, folder / "kafka", kafka=KAFKA, more=broker_settings)
        spark.stop()  # it has fetched the JARs
        try:
            kafka = Kafka(
                broker, folder / "classes", {"session.timeout.ms": session_ms, "heartbeat.interval.ms": heartbeat_ms}
            )
            systems: dict[str, Make] = {
                "Kafka, range (eager)": kafka.classic("RangeAssignor"),
                "Kafka, cooperative-sticky": kafka.classic("CooperativeStickyAssignor"),
                "Kafka, group.protocol=consumer": kafka.new,
                "partq": lambda name: _ours(folder / name, session_ms, batch_ms, {}),
                "partq, no holddown": lambda name: _ours(
                    folder / name, session_ms, batch_ms, {"rebalance_delay_ms": 0}
                ),
            }
            figures = list(_measured(systems, runs, every_ms, calm_s))
        finally:
            broker.close()
    show_figures(figures, out)


# ---- measuring
def _measured(systems: Mapping[str, Make], runs: int, every_ms: int, calm_s: float) -> Iterator[Figure]:
    """The systems take turns."""
    found: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    with Progress(transient=True) as progress:
        task = progress.add_task("rebalances", total=runs * len(systems))
        for run in range(runs):
            for number, (name, make) in enumerate(systems.items()):
                members = Members(make(f"run-{run}-{number}"), PARTITIONS, every_ms // TICKS, calm_s)
                try:
                    for event, cost in _events(members):
                        found[event, name].append(cost)
                except (TimeoutError, RuntimeError) as error:
                    error.add_note(name)
                    raise
                finally:
                    members.close()
                progress.advance(task)
    for (event, name), costs in sorted(found.items(), key=lambda item: EVENTS.index(item[0][0])):
        yield from _figures(event, name, costs)


def _events(members: Members) -> Iterator[tuple[str, Cost]]:
    members.begin([f"m{i}" for i in range(MEMBERS)])
    members.start("late")
    yield "join", members.cost(members.join, "late")
    yield "leave", members.cost(members.leave, "m1")
    members.joined("last")
    yield "crash", members.cost(members.crash, "m2")


def _figures(event: str, name: str, costs: Sequence[Cost]) -> Iterator[Figure]:
    figures: dict[str, list[float]] = {
        "partitions that changed hands needlessly": [cost.moved for cost in costs],
        "partitions that were revoked needlessly": [cost.revoked for cost in costs],
        "longest pause of a partition that stays, beyond the usual, ms": [c.pause_ms - c.usual_ms for c in costs],
        "gap of a partition that moves, median, ms": [median(cost.gaps_ms) for cost in costs],
        "gap of a partition that moves, longest, ms": [max(cost.gaps_ms) for cost in costs],
        "until all that move have been given to their new owners, ms": [cost.owned_ms for cost in costs],
        "until all that move are delivered again, ms": [cost.last_ms for cost in costs],
    }
    usual = f"; usual {median([cost.usual_ms for cost in costs]):.0f}"
    for what, values in figures.items():
        detail = f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"
        yield known(f"{event}: {what}", name, median(values), detail + (usual if "usual" in what else ""))


# ---- the systems
class Kafka:
    def __init__(self, broker: Broker, classes: Path, timing: Mapping[str, object]) -> None:
        self._broker, self._timing = broker, timing
        compiler = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        subprocess.run([*compiler, "-d", str(classes), "-cp", broker.classpath, str(SOURCE)], check=True)
        path = os.pathsep.join([str(classes), broker.classpath])
        self._java = [java(), *SMALL, "-cp", path, "KafkaRebalance"]

    def classic(self, assignor: str) -> Make:
        settings = {"group.protocol": "classic", "partition.assignment.strategy": f"{ASSIGNORS}.{assignor}"}
        return lambda topic: self._system(topic, {**settings, **self._timing})

    def new(self, topic: str) -> System:
        return self._system(topic, {"group.protocol": "consumer"})  # the timing is the broker's

    def _system(self, topic: str, settings: Mapping[str, object]) -> System:
        self._broker.ask("create", topic, PARTITIONS)
        server = f"bootstrap.servers={self._broker.servers}"
        group = {"group.id": topic, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000, **settings}
        consume = [*self._java, "consume", topic, server, *(f"{name}={value}" for name, value in group.items())]

        def produce(tick_ms: int) -> Sequence[str]:
            return [*self._java, "produce", topic, str(PARTITIONS), str(tick_ms), str(TICKS), server, "linger.ms=0"]

        return System(lambda _: consume, produce, lambda: self._broker.ask("delete", topic))


def _ours(store: Path, session_ms: int, batch_ms: int, settings: Mapping[str, Any]) -> System:
    partq.create_queue(str(store), "q", "k string, v bigint", key="k", partitions=PARTITIONS, **settings)
    worker = [sys.executable, "-m", "benchmarks.rebalance_worker"]
    return System(
        lambda name: [*worker, "consume", str(store), name, str(session_ms), str(batch_ms)],
        lambda tick_ms: [*worker, "produce", str(store), str(tick_ms), str(TICKS)],
        lambda: None,  # with the folder
    )


if __name__ == "__main__":
    typer.run(main)
