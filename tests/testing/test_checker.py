"""The checker of deliveries finds each fault that is planted, and nothing where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from spark_partq.testing.checker import Report, Violation, check, missed

Rows = list[dict[str, Any]]


class Story:
    """One partition of queue q, told step by step; the clock goes on by one with each."""

    def __init__(self) -> None:
        self.records: Rows = []
        self.facts: Rows = [self._fact(0, "PartitionAdded", offset=0)]
        self.at = 0

    @staticmethod
    def _fact(seq: int, kind: str, **columns: Any) -> dict[str, Any]:
        return {"seq": seq, "kind": kind, "queue": "q", "partition": 0, **columns}

    def grant(
        self, epoch: int, instance: str, offset: int, delivered: int | None = None, base: int | None = None
    ) -> None:
        self.facts.append(
            self._fact(
                len(self.facts), "Granted", epoch=epoch, lineage_epoch=base or epoch, flow=f"{instance}/0", offset=offset,
                delivered=offset if delivered is None else delivered,
            )
        )  # fmt: skip

    def released(self, offset: int) -> None:
        self.facts.append(self._fact(len(self.facts), "Released", offset=offset))

    def start(self, run: str, batch: int, epoch: int, *offsets: int, again: bool = False) -> None:
        self.at += 1
        about = {"run": run, "batch": batch, "at": self.at}
        self.records.append({"kind": "start", **about})
        instance = run[0]
        for offset in offsets:
            self.records.append(
                {
                    "kind": "row", **about, "instance": instance, "queue": "q", "partition": 0, "offset": offset, "epoch": epoch,
                    "flow": f"{instance}/0", "redelivered": again,
                }
            )  # fmt: skip

    def end(self, run: str, batch: int) -> None:
        self.at += 1
        self.records.append({"kind": "end", "run": run, "batch": batch, "at": self.at})

    def batch(self, run: str, batch: int, epoch: int, *offsets: int, again: bool = False) -> None:
        self.start(run, batch, epoch, *offsets, again=again)
        self.end(run, batch)

    def former(self, run: str, batch: int, epoch: int, *offsets: int, again: bool = False) -> None:
        """A former owner, which stood still, begins only now; the grants so far were decided before."""
        for fact in self.facts:
            fact.setdefault("at_s", 0.5)
        self.batch(run, batch, epoch, *offsets, again=again)

    def check(self, sent: int, position: int | None = None, keys: str = "", **options: Any) -> Report:
        positions = None if position is None else {("q", 0): position}
        return check(self.records, self.facts, {("q", 0): list(keys or "k" * sent)}, positions, **options)


def kinds(report: Report) -> list[str]:
    return [f.kind for f in report.findings]


@pytest.fixture
def story() -> Story:
    return Story()


# ---- what is allowed
@pytest.mark.parametrize("marked", [("new",), ("former",), ("new", "former"), ()], ids="+".join)
def test_one_of_two_owners_that_were_given_the_same_has_a_mark(story: Story, marked: tuple[str, ...]) -> None:
    """H4: `a` stood still and planned behind the grant; whoever of the two planned second knows it. Nobody did: that is found."""
    story.grant(1, "a", 0)
    story.grant(2, "b", 0)
    story.batch("b1", 0, 2, 0, 1, again="new" in marked)
    story.former("a1", 0, 1, 0, 1, again="former" in marked)
    assert kinds(story.check(2)) == ([] if marked else ["repeated", "unmarked"] * 2)


def test_who_planned_second_may_have_the_messages_first(story: Story) -> None:
    """H4: the micro-batch of `a` begins behind that of `b`, and has its messages before: both are read at once."""
    story.grant(1, "a", 0)
    story.grant(2, "b", 0)
    story.start("b1", 0, 2, 0, 1)
    story.former("a1", 0, 1, 0, 1, again=True)
    for record in story.records:
        if record["kind"] == "row" and record["run"] == "b1":
            record["at"] = story.at
    story.end("b1", 0)
    assert kinds(story.check(2)) == []


def test_a_mark_of_a_former_owner_that_came_first_excuses_nobody(story: Story) -> None:
    """H4: what `a` was given before `b` is marked there whether or not `a` had it again."""
    story.grant(1, "a", 0)
    story.former("a1", 0, 1, 0, 1, again=True)
    story.grant(2, "b", 0)
    story.batch("b1", 0, 2, 0, 1)
    assert kinds(story.check(2)) == ["repeated", "unmarked"] * 2


def test_graceful_handoff(story: Story) -> None:
    """H1: nothing twice, nothing to find."""
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0, 1, 2)
    story.released(3)
    story.grant(2, "b", 3)
    story.batch("b1", 0, 2, 3, 4)
    report = story.check(5, 5)
    assert report.ok and report.delivered == 5 and report.again == []
    assert str(report) == "5 delivered, 0 of them again as allowed"


def test_forced_handoff(story: Story) -> None:
    """H4: what was not acknowledged comes again, marked; the old owner ends its micro-batch when it likes."""
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0, 1, 2)
    story.grant(2, "b", 1, delivered=3)
    story.batch("b1", 0, 2, 1, 2, again=True)
    story.end("a1", 0)
    report = story.check(3, 3, keys="xyz")
    assert report.ok and report.again == [("q", 0, 1), ("q", 0, 2)]


def test_late_delivery_of_a_zombie(story: Story) -> None:
    """W2: a process that was stopped between planning and delivering is behind the new owner, and does not count."""
    story.grant(1, "a", 0)
    story.grant(2, "b", 0, delivered=2)
    story.batch("b1", 0, 2, 0, 1, again=True)
    story.batch("a1", 0, 1, 0, 1)
    assert story.check(2, 2).ok


@pytest.mark.parametrize(("again", "found"), [(True, []), (False, [Violation.REPEATED, Violation.UNMARKED])])
def test_a_zombie_that_plans_behind_the_grant(story: Story, again: bool, found: list[Violation]) -> None:
    """H4: the group could not know of it when it decided; the new owner, who plans behind it, does."""
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0)
    story.grant(2, "b", 0, delivered=1)
    story.facts[-1]["at_s"] = story.at + 0.5
    story.batch("a1", 1, 1, 1)
    story.batch("b1", 0, 2, 0, again=True)
    story.batch("b1", 1, 2, 1, again=again)
    assert sorted(kinds(story.check(2))) == found


def test_replay_after_a_restart(story: Story) -> None:
    """K6: the same instance gets its last micro-batch again, in the same lineage."""
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0, 1)
    story.grant(2, "a", 0, delivered=2, base=1)
    story.batch("a2", 0, 2, 0, 1, again=True)
    report = story.check(2, 2)
    assert report.ok and len(report.again) == 2


def test_released_by_one_and_outstanding_from_another(story: Story) -> None:
    """H4: whoever handed over cleanly need not be the one that was given more before."""
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0, 1, 2)
    story.grant(2, "b", 0, delivered=3)
    story.batch("b1", 0, 2, 0, 1, again=True)
    story.released(2)
    story.grant(3, "c", 2, delivered=3)
    story.batch("c1", 0, 3, 2, again=True)
    assert story.check(3, 3).ok


def test_not_acknowledged_yet(story: Story) -> None:
    """A micro-batch that is still running is neither lost nor wrong."""
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0, 1)
    assert story.check(2, 0).ok


# ---- what is not
def test_lost(story: Story) -> None:
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0, 2)
    report = story.check(3, 3)
    assert kinds(report) == [Violation.LOST] and report.findings[0].offset == 1
    assert "lost: q/0 offset 1: nobody was given it" in str(report)


def test_lost_at_the_end_and_a_partition_nobody_read(story: Story) -> None:
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0)
    assert kinds(story.check(2)) == [Violation.LOST]
    assert kinds(check([], [], {("q", 1): ["k"]})) == [Violation.LOST]


def test_lost_though_somebody_had_it(story: Story) -> None:
    """Delivered before a forced handoff by who lost it, and skipped by the next owner."""
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0, 1)
    story.grant(2, "b", 0, delivered=2)
    story.batch("b1", 0, 2, 1, again=True)
    assert kinds(story.check(2)) == [Violation.LOST]


def test_late_acknowledgement_that_counted(story: Story) -> None:
    """H4: the position went past what the owner has delivered, because of the former owner."""
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0, 1)
    story.grant(2, "b", 0, delivered=2)
    story.end("a1", 0)
    assert kinds(story.check(2, 2)) == [Violation.FENCED, Violation.FENCED]


def test_late_acknowledgement_that_counted_before_another_grant(story: Story) -> None:
    """The same, told by where the owner after next begins."""
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0)
    story.grant(2, "b", 0, delivered=1)
    story.grant(3, "c", 1)
    story.batch("c1", 0, 3, 1)
    assert kinds(story.check(2, 2)) == [Violation.FENCED]


def test_acknowledged_but_not_finished(story: Story) -> None:
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0)
    assert kinds(story.check(1, 1)) == [Violation.UNFINISHED]
    assert story.check(1, 1, manual=True).ok


def test_twice_under_one_epoch(story: Story) -> None:
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0)
    story.batch("a1", 1, 1, 0, again=True)
    assert kinds(story.check(1)) == [Violation.REPEATED]


def test_twice_in_one_batch(story: Story) -> None:
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0, 0, again=True)
    assert kinds(story.check(1)) == [Violation.REPEATED]


def test_twice_though_handed_over_cleanly(story: Story) -> None:
    """H1: the release said that nothing was outstanding."""
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0, 1, 2)
    story.released(2)
    story.grant(2, "b", 2, delivered=3)
    story.batch("b1", 0, 2, 2, again=True)
    report = story.check(3)
    assert kinds(report) == [Violation.REPEATED] and "handed the partition over at 2" in report.findings[0].text


@pytest.mark.parametrize("offset", [0, 2])
def test_twice_outside_of_what_was_outstanding(story: Story, offset: int) -> None:
    """H4: below the new owner's start, and above what had been given out as far as the group knew."""
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0, 1, 2)
    story.grant(2, "b", 1, delivered=2)
    story.batch("b1", 0, 2, *sorted({1, 2, offset}), again=True)
    assert Violation.REPEATED in kinds(story.check(3))


def test_twice_and_not_marked(story: Story) -> None:
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0)
    story.grant(2, "b", 0, delivered=1)
    story.batch("b1", 0, 2, 0)
    assert kinds(story.check(1)) == [Violation.UNMARKED]


@pytest.mark.parametrize("one_batch", [True, False])
def test_order_within_a_key(story: Story, one_batch: bool) -> None:
    """Q4: of one key the wrong way round; of two keys that is nobody's business."""
    story.grant(1, "a", 0)
    if one_batch:
        story.batch("a1", 0, 1, 1, 0)
    else:
        story.batch("a1", 0, 1, 1)
        story.batch("a1", 1, 1, 0)
    assert kinds(story.check(2)) == [Violation.ORDER]
    assert story.check(2, keys="xy").ok


def test_two_owners_work_on_one_key(story: Story) -> None:
    """H1: the next owner began before the former had finished, and both count."""
    story.grant(1, "a", 0)
    story.start("a1", 0, 1, 0)
    story.released(1)
    story.grant(2, "b", 1)
    story.batch("b1", 0, 2, 1)
    story.end("a1", 0)
    assert kinds(story.check(2)) == [Violation.OVERLAP]
    assert story.check(2, manual=True).ok and story.check(2, keys="xy").ok


def test_under_the_epoch_of_another(story: Story) -> None:
    story.grant(1, "a", 0)
    story.batch("b1", 0, 1, 0)
    assert kinds(story.check(1)) == [Violation.OWNERS]


def test_under_an_epoch_of_nobody(story: Story) -> None:
    story.grant(1, "a", 0)
    story.batch("a1", 0, 2, 0)
    assert Violation.OWNERS in kinds(story.check(1))


def test_two_processes_under_one_epoch(story: Story) -> None:
    """W2: both have one instance id."""
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0)
    story.batch("a2", 0, 1, 1)
    assert kinds(story.check(2)) == [Violation.OWNERS]


def test_one_epoch_granted_twice(story: Story) -> None:
    story.grant(1, "a", 0)
    story.grant(1, "b", 0)
    story.batch("b1", 0, 1, 0)
    assert kinds(story.check(1)) == [Violation.OWNERS]


def test_unknown_message(story: Story) -> None:
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0, 1)
    assert kinds(story.check(1)) == [Violation.UNKNOWN]


# ---- pauses
def test_missed(story: Story) -> None:
    """H2: the message of time 1 was there when micro-batch 0 ended, at 2; it came with 1, or too late with 2."""
    story.grant(1, "a", 0)
    story.batch("a1", 0, 1, 0)
    story.batch("a1", 1, 1)
    story.batch("a1", 2, 1, 1)
    times = {("q", 0): [0.0, 1.0]}
    ((where, offset, text),) = missed(story.records, times, [("q", 0)], "a")
    assert (where, offset) == (("q", 0), 1) and text == "was there before micro-batch 0 ended, and came in 2"
    assert missed(story.records, {("q", 0): [0.0, 3.0]}, [("q", 0)], "a") == []
    assert missed(story.records, times, [], "a") == []
