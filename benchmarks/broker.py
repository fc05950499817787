"""A Kafka broker, whose JARs Spark fetches by name, and what benchmarks and tests ask of it with Kafka's own client."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import SparkSession
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.maven import jars, java, scala
from tools.ports import free_ports

KAFKA = "org.apache.kafka:kafka_2.13:3.9.1"
CLIENT = Path(__file__).parent / "java" / "KafkaClient.java"
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
log.retention.ms=-1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Message(NamedTuple):
    """As a topic has it."""

    partition: int
    offset: int
    key: str | None
    value: str
    at_ms: int
    headers: dict[str, str]


class Broker:
    """One broker, which is its own controller, and one client; both on this machine alone.

    Parameters
    ----------
    flags : str
        Of the JVM of each.
    kafka : str
        Where its JARs are from.
    more : mapping
        Further settings of the broker.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        flags: str = "-Xmx1g",
        kafka: str = KAFKA,
        more: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        folder.mkdir(parents=True)
        self._folder, self._requests = folder, 0
        self.classpath = os.pathsep.join([*jars(spark, kafka), *scala(spark)])
        command = [java(), *flags.split(), "-cp", self.classpath]
        self.port, controller = free_ports(2)
        settings = folder / "server.properties"
        lines = [SETTINGS.format(port=self.port, controller=controller, logs=folder / "logs")]
        settings.write_text("\n".join([*lines, *(f"{name}={value}" for name, value in more.items())]))
        id_ = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        told = subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", "-t", id_, "-c", str(settings)],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode:
            raise RuntimeError(told.stdout + told.stderr)
        self._out = (folder / "broker.out").open("w")
        self._process = subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=self._out, stderr=self._out)
        self._await()
        self._client = subprocess.Popen(
            [*command, str(CLIENT), self.servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._out,
            text=True,
        )

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @retry(retry=retry_if_exception_type(OSError), wait=wait_fixed(0.1), stop=stop_after_delay(60), reraise=True)
    def _await(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError((self._folder / "broker.out").read_text())
        socket.create_connection(("127.0.0.1", self.port)).close()

    def ask(self, *words: object) -> None:
        """A request of `KafkaClient.java`."""
        assert self._client.stdin is not None and self._client.stdout is not None
        self._client.stdin.write("\t".join(map(str, words)) + "\n")
        self._client.stdin.flush()
        answer = self._client.stdout.readline().strip()
        if answer != "done":
            raise RuntimeError(answer or (self._folder / "broker.out").read_text())

    def write(self, topic: str, messages: Iterable[tuple[str | None, str, int]]) -> list[tuple[int, int]]:
        """Send messages (key, value, milliseconds) with Kafka's own partitioner; their partitions and offsets."""
        self._requests += 1
        file, places = (self._folder / f"{self._requests}.{kind}" for kind in ("in", "places"))
        file.write_text("".join(f"{'-' if key is None else key}\t{value}\t{at_ms}\n" for key, value, at_ms in messages))
        self.ask("write", topic, file, places)
        return [(int(partition), int(offset)) for partition, offset in map(str.split, places.read_text().splitlines())]

    def read(self, topic: str) -> list[Message]:
        """All messages of a topic, those of a partition in order."""
        self._requests += 1
        file = self._folder / f"{self._requests}.out"
        self.ask("read", topic, file)
        return sorted(map(_message, file.read_text().splitlines()), key=lambda message: message[:2])

    def close(self) -> None:
        assert self._client.stdin is not None
        self._client.stdin.close()
        self._client.wait()
        self._process.terminate()
        self._process.wait()
        self._out.close()


def _message(line: str) -> Message:
    partition, offset, key, value, at_ms, headers = line.split("\t")
    pairs = dict(pair.split("=", 1) for pair in headers.split(",") if pair)
    return Message(int(partition), int(offset), None if key == "-" else key, value, int(at_ms), pairs)
