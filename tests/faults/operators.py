"""What operators do to the queue of a history, and what befalls the machine: each step a function of the history and of what it draws."""

from __future__ import annotations

from random import Random

from tests.clocks import SKEW
from tests.faults.history import History
from tests.faults.machine import allow, fill, forbid, why_no_read_only
from tests.faults.nemesis import kill_consumer, kill_producer, operate, standby, stop_consumer

_NOTICED_S = 5.0


def maybe(rng: Random) -> Random | None:
    """Half of the operations are killed in the middle first."""
    return rng if rng.random() < 0.5 else None


def resize(h: History, rng: Random) -> str:
    """Up or down, and back; a group reads through the barrier of each."""
    first, second = rng.sample(range(3, 9), 2)
    blows: list[str] = []
    for count in (first, second):
        operate(h, "scale", {"store": h.store, "partitions": count}, maybe(rng), lambda: blows.extend(blow(h, rng)))
    return ", ".join([f"to {first} and {second}", *blows])


def blow(h: History, rng: Random) -> list[str]:
    """In the middle of an operation, half of the time."""
    if rng.random() >= 0.5:
        return []
    step = rng.choice([kill_producer, kill_consumer, stop_consumer])
    return [f"{step.__name__} {step(h, rng)}"]


def maintain(h: History, rng: Random) -> str:
    """Twice, with a grace of 20 s instead of a day: messages that all groups have are removed, then their files."""
    for _ in range(2):
        operate(h, "maintain", {"store": h.store, "grace_ms": 20_000}, maybe(rng))
    return "twice"


def replicate(h: History, rng: Random) -> str:
    """Two passes of replication into another store."""
    about = {"store": h.store, "queue": "q", "location": standby(h)}
    blows: list[str] = []
    for _ in range(2):
        operate(h, "replicate", about, maybe(rng), lambda: blows.extend(blow(h, rng)))
    return ", ".join(["two passes", *blows])


def promote(h: History, rng: Random) -> str:
    """The replica takes over while everybody works; all are killed or leave, and go on there."""
    there = standby(h)
    operate(h, "replicate", {"store": h.store, "queue": "q", "location": there})
    kills = rng.random() < 0.5
    with h.nobody_works():
        if not kills:
            for role in list(h.roles):
                h.leave(role)
        operate(h, "promote", {"store": there, "queue": "q"}, maybe(rng))
        for role in h.roles if kills else []:
            h.kill(role)
        h.former.append(h.store)
        h.store = there
        for role in h.roles:
            role.number += role.kind != "producer"
            h.start(role)
        for role in h.roles:
            h.started(role)
    h.happened["promotion"] += 1
    return "under fire" if kills else "after all have left"


def reset(h: History, rng: Random) -> str:
    """A group that nobody consumes in is set back to what is there; its queries go on with their checkpoints."""
    group = rng.choice(h.consumers).group
    with h.nobody_works():
        members = [role for role in h.consumers if role.group == group]
        for role in members:
            h.leave(role)
        operate(h, "reset_offsets", {"store": h.store, "group": group, "to": "earliest"})
        for role in members:
            h.start(role)
        for role in members:
            h.started(role)
    return group


# ---- the machine
def disk_full(h: History, rng: Random) -> str:
    """Not a byte more fits; queries end with an error and are started again, until there is space."""
    if h.small_disk:
        h.not_done.add(f"disk full: {h.small_disk}")
        return "not done"
    with h.nobody_works():
        ballast = fill(h.home)
        noticed = _noticed(h)
        ballast.unlink()
    return "noticed" if noticed else "not noticed"


def read_only(h: History, rng: Random) -> str:
    """A folder of the store may not be written for a while."""
    if why_no_read_only():
        h.not_done.add(f"read-only folder: {why_no_read_only()}")
        return "not done"
    below = rng.choice(["queues/q/partitions", "queues/q/manifests", "groups/g", "groups/h", "queues"])
    with h.nobody_works():
        modes = forbid(h.home.parent / h.store / below)
        noticed = _noticed(h)
        allow(modes)
    return f"{below} {'noticed' if noticed else 'not noticed'}"


def _noticed(h: History) -> bool:
    """Wait until a query has ended with an error, or a while, if nobody has to write there."""
    before = h.queries_ended()
    try:
        h.until(lambda: h.queries_ended() > before, "an error", _NOTICED_S)
    except AssertionError:
        return False
    return True


def clock(h: History, rng: Random) -> str:
    """A process has a clock that is wrong: by less than the queue allows, or a producer by more, which is refused."""
    refused = rng.random() < 0.3
    role = rng.choice(h.producers if refused else h.roles)
    h.leave(role)
    seconds = rng.choice([-1, 1]) * (3_600 if refused else rng.randint(60, 300))
    application = h.own({SKEW: str(seconds)}, role.kind != "producer")
    if refused:
        with h.nobody_works():
            before = h.happened["ended: CLOCK_SKEW"]
            h.start(role, application)
            h.until(lambda: h.happened["ended: CLOCK_SKEW"] > before, f"the refusal of a clock {seconds} s ahead")
            application.kill()
            h.start(role)
    else:
        h.start(role, application)
    return f"{role.kind} {'refused' if refused else 'allowed'}"
