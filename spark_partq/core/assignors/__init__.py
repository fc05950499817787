"""Assignors: pure functions from members and partitions to who shall own what (K1, R6).

What each of them does stands in docs/assignors.md.
"""

from spark_partq.core.assignors.calls import assign, target
from spark_partq.core.assignors.model import Member
from spark_partq.core.assignors.plugin import PlugIn, UserAssignor
from spark_partq.core.assignors.registry import BUILTIN, Assignor

__all__ = ["BUILTIN", "Assignor", "Member", "PlugIn", "UserAssignor", "assign", "target"]
