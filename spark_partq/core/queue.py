"""State of a queue, replayed from the facts of its control table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from spark_partq.core.schema import Struct
from spark_partq.core.settings import QueueSettings

Status = Literal["ScalingUp", "Ready", "Deleting"]


@dataclass(frozen=True)
class QueueFact:
    """One row of a queue's control table.

    `kind` is one of

    - ``QueueCreated``  body: queue_id, schema, key, partitions, settings
    - ``PartitionsCreated``  body: partitions, the operating count from now on
    - ``QueueDeleted``  body: nothing; what remains of the queue is being removed
    """

    kind: str
    body: dict[str, Any]


@dataclass(frozen=True)
class QueueState:
    """What a queue is.

    Attributes
    ----------
    queue_id : str
        UUID; a queue made anew under an old name has another one, so it inherits no positions.
    schema : dict
        Payload columns in Spark's JSON form.
    key : tuple of str
        Columns of the partition key, empty if the queue has none.
    configured_partitions, operating_partitions : int
        Wanted and existing partition counts (S8).
    generation : int
        Number of the partition map in force; part of a sink's transaction ids.
    """

    name: str
    queue_id: str
    schema: Struct
    key: tuple[str, ...]
    configured_partitions: int
    operating_partitions: int
    generation: int
    settings: QueueSettings
    status: Status

    @property
    def key_types(self) -> list[Any]:
        types = {f["name"]: f["type"] for f in self.schema["fields"]}
        return [types[name] for name in self.key]


def replay(name: str, facts: Iterable[QueueFact]) -> QueueState | None:
    """The state after these facts, or None if there are none."""
    state: QueueState | None = None
    for fact in facts:
        match fact.kind:
            case "QueueCreated":
                state = QueueState(
                    name=name,
                    queue_id=fact.body["queue_id"],
                    schema=fact.body["schema"],
                    key=tuple(fact.body["key"]),
                    configured_partitions=fact.body["partitions"],
                    operating_partitions=0,
                    generation=0,
                    settings=QueueSettings.parse(fact.body["settings"]),
                    status="ScalingUp",
                )
            case "PartitionsCreated" if state:
                state = _with(state, operating_partitions=fact.body["partitions"], status="Ready")
            case "QueueDeleted" if state:
                state = _with(state, status="Deleting")
            case _:
                raise ValueError(f"fact {fact.kind} cannot follow {state.status if state else 'nothing'}")
    return state


def created(queue_id: str, schema: Struct, key: Iterable[str], partitions: int, settings: QueueSettings) -> QueueFact:
    body = {
        "queue_id": queue_id,
        "schema": schema,
        "key": list(key),
        "partitions": partitions,
        "settings": settings.model_dump(),
    }
    return QueueFact("QueueCreated", json.loads(json.dumps(body)))


def _with(state: QueueState, **changes: Any) -> QueueState:
    return QueueState(**{**state.__dict__, **changes})
