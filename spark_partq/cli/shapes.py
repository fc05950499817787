"""What commands print with ``--json`` if it is no dataclass of the library. `tools.json_fields` makes docs/json.md from these classes and those dataclasses."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from spark_partq.core.group.facts import GroupFact
from spark_partq.storage.inspect.describe_queue import QueueDescription


class ListedQueue(TypedDict):
    """A queue as `list` shows it. A queue that cannot be read has only `name` and `status`.

    Attributes
    ----------
    name : str
        The name of the queue.
    status : str
        The status of the queue: ``Ready``, ``ScalingUp``…; ``Creating`` or ``Deleting`` while the queue is created or deleted, or after that was
        interrupted; or the class of the error, if the queue cannot be read.
    role : str
        The role of the queue: ``primary``, ``replica of URI``, or ``taken over by URI``.
    partitions : int
        How many partitions of the queue consumers share; 0 is an exclusive queue.
    configured_partitions : int
        The partition count that is wanted for the queue; 0 is an exclusive queue.
    ingress : bool
        Whether the queue takes messages.
    depth : int
        Stored messages of the queue that not every group has acknowledged.
    groups : list
        The names of the groups that read the queue.
    waiting : dict
        By group, how many partitions of the queue wait at the barrier of a resize; groups without such a partition are left out.
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
        The queues of the store, in the order of their names.
    groups : list
        The names of the store's consumer groups that are not deleted.
    group_states : dict
        By group, its state as in `GroupDescription`; or the class of the error, if the group cannot be read.
    """

    queues: list[ListedQueue]
    groups: list[str]
    group_states: dict[str, str]


class TailedMessage(TypedDict):
    """A message of a queue.

    Attributes
    ----------
    partition : int
        The number of the partition that holds the message; -1 is the parent of a queue that became partitioned.
    offset : int
        The offset of the message in its partition.
    enqueued_at : str
        When the message was enqueued, in UTC (ISO 8601).
    message : dict
        The message: the value of each column, by name. Timestamps and dates are texts in ISO 8601, bytes are hexadecimal digits, decimals are texts, and so are ``NaN``,
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
        True if the command created the queue, false if the queue already existed (``--exist-ok``).
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
        The name of the deleted queue.
    deleted : bool
        Always true: the queue is deleted.
    """

    queue: str
    deleted: bool


class DeletedGroup(TypedDict):
    """What `delete-group` did.

    Attributes
    ----------
    group : str
        The name of the deleted group.
    deleted : bool
        Always true: the group is deleted.
    """

    group: str
    deleted: bool


class DeletedMessages(TypedDict):
    """What `delete-messages` did.

    Attributes
    ----------
    queue : str
        The name of the queue.
    deleted : int
        How many messages were deleted, including messages of the queue's dead-message queue.
    """

    queue: str
    deleted: int


class CopiedMessages(TypedDict):
    """What `copy-stuck` did.

    Attributes
    ----------
    queue : str
        The name of the queue.
    copied : int
        How many messages the command moved out of the queue's parent into its partitions.
    """

    queue: str
    copied: int


class Rebalanced(TypedDict):
    """The decisions of `rebalance` in a group.

    Attributes
    ----------
    group : str
        The name of the group.
    decisions : list
        The facts that the command decided for the group, in their order.
    status : str
        The group's status after these decisions: ``Ready``, ``Holddown`` or ``Rebalancing``. Absent with ``--watch``.
    members : int
        How many queries are in the group after these decisions. Absent with ``--watch``.
    """

    group: str
    decisions: list[GroupFact]
    status: NotRequired[str]
    members: NotRequired[int]
