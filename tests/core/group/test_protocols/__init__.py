"""K1, K3-K7: assignors and protocols of a group. The planted bugs name these tests through this package."""

from tests.core.group.test_protocols.test_assignors import test_who_leaves_may_leave
from tests.core.group.test_protocols.test_choice import test_the_assignor_that_all_support_with_the_most_votes
from tests.core.group.test_protocols.test_eager import (
    test_an_eager_member_joins_while_partitions_move,
    test_an_eager_revocation_has_a_deadline,
)
from tests.core.group.test_protocols.test_members import (
    test_flows_that_differ_have_no_standbys,
    test_those_who_are_left_are_alike_but_not_what_the_group_was,
)
from tests.core.group.test_protocols.test_queues import (
    test_a_pattern_finds_queues,
    test_a_queue_that_nobody_reads_any_more,
    test_each_gets_only_what_it_reads,
    test_queues_come_to_a_group_that_has_none,
)

__all__ = [
    "test_a_pattern_finds_queues",
    "test_a_queue_that_nobody_reads_any_more",
    "test_an_eager_member_joins_while_partitions_move",
    "test_an_eager_revocation_has_a_deadline",
    "test_each_gets_only_what_it_reads",
    "test_flows_that_differ_have_no_standbys",
    "test_queues_come_to_a_group_that_has_none",
    "test_the_assignor_that_all_support_with_the_most_votes",
    "test_those_who_are_left_are_alike_but_not_what_the_group_was",
    "test_who_leaves_may_leave",
]
