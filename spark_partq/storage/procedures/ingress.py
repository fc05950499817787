"""Whether a queue takes messages (S3). Consumers go on either way."""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core import arguments
from spark_partq.core.errors import IngressDisabledError
from spark_partq.core.queue import decide
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.handle import Queue


def set_ingress(queue: Queue, enabled: bool) -> QueueState:
    """Disable or enable ingress. Nothing changes if ingress is in that state already.

    Raises
    ------
    InvalidArgumentError, ScalingInProgressError
        If the queue is being drained: draining itself disables ingress and enables it again.
    QueueFencedError, ReplicaError
    """

    arguments.truth("enabled", enabled)

    def facts(state: QueueState) -> Sequence[QueueFact]:
        check_primary(queue, opening=True)
        return decide.set_ingress(state, enabled)

    return queue.control.decide(facts)


def ingress_disabled(queue: str) -> IngressDisabledError:
    return IngressDisabledError(
        f"queue {queue!r} takes no messages now (its ingress is disabled); nothing of this batch was written. Start "
        "the query, or run the command, again once ingress is enabled: the batch is then written",
        queue=queue,
    )
