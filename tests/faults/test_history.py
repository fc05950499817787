"""What a history takes for an error that a step explains, and what its nemesis tells of steps that it could not do as drawn."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults import nemesis, operators
from tests.faults.history import History, Role
from tests.faults.nemesis import hold_up, kill_producer, operate, stop_consumer
from tests.faults.plan import draw
from tests.faults.run import STEPS


class _Starting:
    def there(self) -> bool:
        return False


class _Ended:
    """An application whose query has ended, and that starts it again when it is told to."""

    error: str | None = "[COMMIT_FAILED] no space"

    def ask(self, what: str, **_: Any) -> dict[str, Any]:
        assert what == "status"
        return {"error": self.error}

    def tell(self, *_: Any, **__: Any) -> _Starting:
        self.error = None
        return _Starting()


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Its disk is full; each group has finished a micro-batch meanwhile."""
    made = History(draw(0, 500, ("resize",)), None, tmp_path)  # type: ignore[arg-type]
    for name in ("w0", "r0"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"kind": "end", "at": time.monotonic() + 60}) + "\n")
    return made


@pytest.mark.parametrize("in_time", [True, False])
def test_what_ended_in_time_is_explained_by_the_step(history: History, in_time: bool) -> None:
    """It may have ended a moment after it was last looked at; what ends later is a finding."""
    history.roles = []
    with history.nobody_works():
        history.look()
        role = Role("w1", "writer", application=_Ended())  # type: ignore[arg-type]
        if in_time:
            history.roles.append(role)
    history.flows()
    if not in_time:
        history.roles.append(role)
        history.look(at_once=True)
    assert history.happened["ended: COMMIT_FAILED"] == 1
    assert history.ended == ([] if in_time else ["w1 ended: [COMMIT_FAILED] no space"])


def test_a_consumer_that_is_held_up_at_once(history: History, tmp_path: Path) -> None:
    """It says so before the nemesis looks for the first time; nobody waits then."""
    hold = tmp_path / "w1.before"
    assert hold_up(history, Role("w1", "writer"), hold, lambda: ["held"] if hold.exists() else [])


class _Held:
    """An application whose query says that it is held up, or never does."""

    def __init__(self, history: History, says: bool) -> None:
        self._folder, self._says = history.folder, says

    def ask(self, what: str, **_: Any) -> Any:
        for hold in self._folder.glob("p0.commits") if self._says else []:
            _append(hold.with_name("p0.jsonl"), ["held"])
        for hold in [*self._folder.glob("w1.before"), *self._folder.glob("w1.after")] if self._says else []:
            _append(hold.with_name("w1.delivery"), ["held", hold.suffix[1:]])
        return {"error": None}

    def tell(self, *_: Any, **__: Any) -> _Starting:
        return _Starting()

    def kill(self) -> None: ...

    stop_signals = cont = kill


def _append(path: Path, line: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize(
    ("step", "role", "told"),
    [(kill_producer, Role("p0", "producer"), "producer"), (stop_consumer, Role("w1", "writer"), "writer")],
)
def test_whom_the_nemesis_could_not_hold_up(
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[[History, Random], str],
    role: Role,
    told: str,
    says: bool,
) -> None:
    """Then the step says that it killed or stopped the query anywhere."""
    monkeypatch.setattr(nemesis, "_HELD_WITHIN_S", 0.1)
    monkeypatch.setattr(history, "free", lambda _=False: _Held(history, says))
    role.application, role.stopped = _Held(history, says), False  # type: ignore[assignment]
    history.roles = [role]
    found = step(history, Random(2))  # which draws a hold for both
    assert found.startswith(told) and (found.endswith("anywhere") != says), found


class _Operator:
    """An application that has ended what it is told to do, or never does."""

    def __init__(self, ends: bool) -> None:
        self._ends = ends

    def ask(self, *_: Any) -> None: ...

    def tell(self, *_: Any, **__: Any) -> Any:
        return _Done() if self._ends else _Starting()

    def kill(self) -> None: ...


class _Done(_Starting):
    def there(self) -> bool:
        return True

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("ends", "told"), [(True, "scale killed after its end"), (False, "scale killed before its end")]
)
def test_an_operation_that_ends_before_it_is_killed(
    history: History, monkeypatch: pytest.MonkeyPatch, ends: bool, told: str
) -> None:
    applications = iter([_Operator(ends), _Operator(True)])
    monkeypatch.setattr(history, "free", lambda: next(applications))
    history.roles = []
    operate(history, "scale", {}, Random(0))
    assert history.happened == {told: 1, "kill -9": 1, "scale": 1}


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("disk_full", "disk full: only root"),
        ("read_only", "read-only folder: no setpriv"),
        ("kill_executor", "kill_executor: consumers run without Spark"),
        ("cut_answers", "20% cut answer: the store lies on a disk"),
    ],
)
def test_a_step_that_this_machine_cannot_do(
    history: History, monkeypatch: pytest.MonkeyPatch, step: str, reason: str
) -> None:
    """The figures name it, and the line of the history says that it was not done."""
    monkeypatch.setattr(operators, "why_no_read_only", lambda: "no setpriv")
    history.small_disk = "only root"
    assert STEPS[step](history, Random(0)) == "not done"
    assert history.not_done == {reason} and not history.in_force
