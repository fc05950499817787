"""Assignors: pure functions that assign partitions to members (K1, R6). docs/assignors.md says what each of them does.

api               `assign` and `target`
model, claims     the problem as arrays, and the members' claims on partitions
registry, plugin  the built-in assignors, and users'
balanced          the `balanced` assignor in its simplest form, and what balanced means
ranges, roundrobin, weighted    three of the built-in ones; the others are made of the following
homogeneous       for members that all subscribe to the same queues
proportional      for such members with weights
heterogeneous     for members that subscribe to different queues; made of water_filling, stealing and cycle_cancelling
"""

from spark_partq.core.assignors.api import assign, target
from spark_partq.core.assignors.model import Member
from spark_partq.core.assignors.plugin import PlugIn, UserAssignor
from spark_partq.core.assignors.registry import BUILTIN, Assignor

__all__ = ["BUILTIN", "Assignor", "Member", "PlugIn", "UserAssignor", "assign", "target"]
