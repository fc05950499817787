"""K7: which assignor and protocol a group uses, and how a running group changes from one to another."""

from __future__ import annotations

import pytest

from spark_partq.core.errors import GroupMismatchError
from spark_partq.core.group.choice import choose, common_assignors
from spark_partq.core.group.facts import Kind, Member, Status
from tests.core.group.groups import Decided
from tests.core.group.protocols import RANGE, computed


def voter(name: str, order: int, *assignors: str) -> Member:
    eager = {"range", "roundrobin", "sticky"} & set(assignors)
    return Member(name, f"{name}1", 1, 1, assignors, ("q",), cooperative=not eager, order=order)


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ([["range"]], ("range", "eager")),
        ([["balanced"], ["balanced"]], ("balanced", "cooperative")),
        ([["weighted", "balanced"], ["balanced", "weighted"], ["balanced", "weighted"]], ("balanced", "cooperative")),
        ([["weighted", "balanced"], ["balanced", "weighted"]], ("weighted", "cooperative")),  # the oldest one's order
        # What not all support gets no votes, and those who prefer it vote for their next.
        ([["sticky", "range", "roundrobin"], ["roundrobin", "range"], ["range", "roundrobin"]], ("range", "eager")),
        ([["cooperative-sticky", "range"], ["range"]], ("range", "eager")),
        ([["cooperative-sticky", "range"], ["cooperative-sticky"]], ("cooperative-sticky", "eager")),
    ],
)
def test_the_assignor_that_all_support_with_the_most_votes(lists: list[list[str]], chosen: tuple[str, str]) -> None:
    """K7: and the protocol is eager as long as anybody lists an assignor that knows no other."""
    members = [voter(name, i, *listed) for i, (name, listed) in enumerate(zip("abc", lists, strict=False))]
    assert choose(members) == chosen
    assert choose(members[::-1]) == chosen  # it goes by who joined, not by how they stand in a table


def test_what_is_in_common() -> None:
    """K7: in the order of the member that joined first."""
    members = [voter("b", 2, "range", "sticky"), voter("a", 1, "weighted", "sticky", "range")]
    assert common_assignors(members) == ["sticky", "range"]


def test_a_member_with_nothing_in_common() -> None:
    """K7: it is refused, whatever single members have in common with it."""
    group = Decided(4)
    group.join("a", assignors=("range", "sticky"))
    group.join("b", assignors=("sticky", "roundrobin"))
    with pytest.raises(GroupMismatchError, match=r"GROUP_MISMATCH.*no assignor in common.*c: range, roundrobin"):
        group.join("c", assignors=("range", "roundrobin"))


@pytest.mark.parametrize("static", [False, True])
def test_two_rolling_restarts_from_eager_to_cooperative(static: bool) -> None:
    """K7: and back; nobody is ever without a common assignor, and only two rebalances are due to it."""
    group = Decided(6, 1_000)
    for name in "abc":
        group.join(name, assignors=RANGE, static=static)
        group.over()
        group.release()
    assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3], "c/0": [4, 5]}
    both, new = ("cooperative-sticky", "range"), ("cooperative-sticky",)
    told = []
    for listed in (both, new, both, RANGE):
        for name in "abc":
            group.join(name, assignors=listed, static=static)
            assert group.kinds()[:3] == ["MemberJoined", "Granted", "Granted"]
            if group.state.status is Status.HOLDDOWN:
                group.over()
                revoked = group.times(Kind.HANDOFF_STARTED)
                if revoked:
                    group.release()
                told.append((name, listed, *computed(group), revoked))
            assert group.state.status is Status.READY
            assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3], "c/0": [4, 5]}
    assert told == [
        ("c", both, ("cooperative-sticky", "eager"), 6),
        ("c", new, ("cooperative-sticky", "cooperative"), 0),
        ("a", both, ("cooperative-sticky", "eager"), 6),
        ("a", RANGE, ("range", "eager"), 6),
    ]
