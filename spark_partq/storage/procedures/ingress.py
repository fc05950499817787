"""Whether a queue takes messages (S3). Consumers go on either way."""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.errors import ScalingInProgressError
from spark_partq.core.queue.state import QueueFact, QueueState
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.handle import Queue


def set_ingress(queue: Queue, enabled: bool) -> QueueState:
    """Disable or enable ingress; what is so already stays so.

    Raises
    ------
    ScalingInProgressError
        If the queue is being drained, which disables ingress and enables it again itself.
    QueueFencedError, ReplicaError
    """

    def facts(state: QueueState) -> Sequence[QueueFact]:
        check_primary(queue, opening=True)
        if state.scaling is not None and state.scaling.mode == "drain":
            raise ScalingInProgressError(
                f"queue {queue.name!r} is being drained to change its partition count to {state.scaling.partitions}; that disables "
                "ingress, and enables it again at its end. Wait for it, or take it back by scaling to the count it has",
                queue=queue.name,
                partitions=state.scaling.partitions,
            )
        if state.ingress == enabled:
            return []
        return [QueueFact("IngressEnabled" if enabled else "IngressDisabled", {})]

    return queue.control.decide(facts)
