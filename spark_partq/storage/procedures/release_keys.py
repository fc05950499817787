"""Groups stop holding keys back, as the keys' messages are about to be put back: behind all other messages, so each key keeps its order."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spark_partq.core.errors import KeysHeldError
from spark_partq.core.group.events import ReleaseKeys
from spark_partq.storage.group.handle import Group, groups_of
from spark_partq.storage.inspect.backlog import stuck_messages
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.control import user_and_host
from spark_partq.storage.queue.handle import Queue, first_left


def release_keys(aside: Sequence[tuple[Queue, Collection[str]]]) -> bool:
    """Let every group go on with the keys that it holds back in these queues.

    Returns
    -------
    bool
        Whether any group may have held a key whose messages must keep their order. Then keys of messages that it has put aside by now are not
        held any more, either.

    Parameters
    ----------
    aside : sequence
        Queues, each with the groups that put aside the messages to put back. Such a group may be about to hold the keys.

    Raises
    ------
    QueueFencedError, ReplicaError
        If a queue is a replica, or its replica took over.
    KeysHeldError
        Before anything is changed, if producers may write to such a queue, such a group has messages left there, or messages are stuck in its
        parent. These may be later messages of the keys, and would come before those that are put back. A group that is given messages at this moment may be refused after other
        groups have released their keys; nothing more is put back then, either.
    """
    queues = [queue for queue, _ in aside]
    for queue in queues:
        check_primary(queue)
    holding = {queue.name: _holding(queue, groups) for queue, groups in aside}
    for queue in queues:
        ends = _ends(queue, holding[queue.name])
        for group in holding[queue.name]:
            _check_read(queue, group, ends)
    for queue in queues:
        for group in holding[queue.name]:
            _release(queue, group)
    return any(holding[queue.name] for queue in queues if queue.state.settings.dead_letter_order != "skip")


def _release(queue: Queue, group: Group) -> None:
    """Unless the group holds no key by now. All is measured once more on top of the state that the decision changes: another call may have put the
    messages back meanwhile, and the group may hold keys of messages that came after them.
    """
    queue_id = queue.state.queue_id

    def release() -> list[ReleaseKeys]:
        return [ReleaseKeys(queue_id, _ends(queue, [group]))] if queue_id in group.state.held else []

    group.decide(release, user_and_host())
    if queue_id in group.state.held:
        raise _not_read(queue, group)


def _holding(queue: Queue, aside: Collection[str]) -> list[Group]:
    """The groups that hold keys back, and those that may be about to."""
    queue.refresh()
    found = groups_of(queue.store, queue.state)
    return [group for group in found if queue.state.queue_id in group.state.held or group.name in aside]


def _ends(queue: Queue, holding: Sequence[Group]) -> dict[int, int]:
    """The ends up to which each of these groups must have read the queue. With ``skip`` no order is asked for, and nothing must be read.

    Raises
    ------
    KeysHeldError
        If messages may come that none of them has read.
    """
    queue.control.refresh()
    if not holding or queue.state.settings.dead_letter_order == "skip":
        return {}
    names = ", ".join(repr(group.name) for group in holding)
    held = f"keys of dead messages of queue {queue.name!r} are held back (group {names}), and"
    scaling = queue.state.scaling
    opens = scaling is not None and scaling.enables_ingress
    if queue.state.ingress or opens:
        discards = queue.state.settings.reject_to_sender != "including_when_shutdown"
        first = "Stop the producers, as their messages would be discarded meanwhile. " if discards else ""
        wait = "Wait for the change of the partition count, which enables ingress. " if opens else ""
        raise KeysHeldError(
            f"{held} producers may write later messages of these keys before those that are put back. {wait}{first}Run `spark-partq ingress disable "
            f"{queue.name}`, let each group read all messages, run this again, and then enable ingress",
            queue=queue.name,
        )
    queue.refresh()  # after ingress was found to be disabled
    if queue.state.copying is not None or stuck_messages(queue, groups_of(queue.store, queue.state)):
        raise KeysHeldError(
            f"{held} later messages of these keys may be stuck in the parent of the queue. Run `spark-partq copy-stuck {queue.name}`, let each group "
            "read all messages, and run this again",
            queue=queue.name,
        )
    return {
        table.partition: table.next_offset for table in queue.partitions if first_left(queue, table) < table.next_offset
    }


def _check_read(queue: Queue, group: Group, ends: dict[int, int]) -> None:
    group.refresh()
    for number, end in ends.items():
        if (group.position((queue.state.queue_id, number)) or 0) < end:
            raise _not_read(queue, group)


def _not_read(queue: Queue, group: Group) -> KeysHeldError:
    return KeysHeldError(
        f"group {group.name!r} has not read all messages of queue {queue.name!r}, and later messages of keys that the group holds back may be among "
        "them; nothing more was put back. Run this again when the group's lag is 0; a group that nobody uses any more blocks it until it is deleted",
        queue=queue.name,
        group=group.name,
    )
