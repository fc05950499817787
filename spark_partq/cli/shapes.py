"""What commands print with ``--json`` where it is no dataclass of the library. `tools.json_fields` makes docs/json.md from these and from those."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from spark_partq.core.group.facts import GroupFact
from spark_partq.storage.inspect.describe_queue import QueueDescription


class ListedQueue(TypedDict):
    """A queue as `list` shows it. A queue that cannot be read has only `name` and `status`.

    Attributes
    ----------
    name : str
        Its name.
    status : str
        ``Ready``, ``ScalingUp``…; ``Creating`` or ``Deleting`` while that is under way or after it was interrupted; or the class of the error, if
        the queue cannot be read.
    role : str
        ``primary``, ``replica of URI``, or ``taken over by URI``.
    partitions, configured_partitions : int
        How many partitions consumers share, and the count that is wanted; 0 is an exclusive queue.
    ingress : bool
        Whether the queue takes messages.
    depth : int
        Messages that not every group has acknowledged.
    groups : list
        The groups that read the queue.
    waiting : dict
        By group, how many partitions wait at the barrier of a resize; groups without such a partition are left out.
    """

    name: str
    status: str
    role: NotRequired[str]
    partitions: NotRequired[int]
    configured_partitions: NotRequired[int]
    ingress: NotRequired[bool]
    depth: NotRequired[int]
    groups: NotRequired[list[str]]
    waiting: NotRequired[dict[str, int]]


class Listing(TypedDict):
    """The queues and groups of a store.

    Attributes
    ----------
    queues : list
        In the order of their names.
    groups : list
        Names of the consumer groups that are not deleted.
    group_states : dict
        The state of each group, as in `GroupDescription`; or the class of the error, if the group cannot be read.
    """

    queues: list[ListedQueue]
    groups: list[str]
    group_states: dict[str, str]


class TailedMessage(TypedDict):
    """A message of a queue.

    Attributes
    ----------
    partition, offset : int
        Where the message is; partition -1 is the parent of a queue that became partitioned.
    enqueued_at : str
        When the message was enqueued, in UTC (ISO 8601).
    message : dict
        Column to value. Timestamps and dates are texts in ISO 8601, bytes are hexadecimal digits, decimals are texts, and so are ``NaN``,
        ``Infinity`` and ``-Infinity``. Before the year 1 or after 9999, a date is the number of days since 1970, a timestamp the number of microseconds.
    """

    partition: int
    offset: int
    enqueued_at: str
    message: dict[str, Any]


class CreatedQueue(TypedDict):
    """What `create-queue` did.

    Attributes
    ----------
    created : bool
        False if the queue already existed (``--exist-ok``).
    queue : QueueDescription
        The queue as it is now.
    """

    created: bool
    queue: QueueDescription


class DeletedQueue(TypedDict):
    """What `delete-queue` did.

    Attributes
    ----------
    queue : str
        Its name.
    deleted : bool
        True.
    """

    queue: str
    deleted: bool


class DeletedGroup(TypedDict):
    """What `delete-group` did.

    Attributes
    ----------
    group : str
        Its name.
    deleted : bool
        True.
    """

    group: str
    deleted: bool


class DeletedMessages(TypedDict):
    """What `delete-messages` did.

    Attributes
    ----------
    queue : str
        Its name.
    deleted : int
        How many messages were deleted, with those of its dead-message queue.
    """

    queue: str
    deleted: int


class CopiedMessages(TypedDict):
    """What `copy-stuck` did.

    Attributes
    ----------
    queue : str
        Its name.
    copied : int
        How many messages were moved out of the parent.
    """

    queue: str
    copied: int


class Rebalanced(TypedDict):
    """The decisions of `rebalance` in a group.

    Attributes
    ----------
    group : str
        Its name.
    decisions : list
        The decisions, in their order.
    status : str
        The group's status after them: ``Ready``, ``Holddown`` or ``Rebalancing``. Absent with ``--watch``.
    members : int
        How many queries are in the group after them. Absent with ``--watch``.
    """

    group: str
    decisions: list[GroupFact]
    status: NotRequired[str]
    members: NotRequired[int]
