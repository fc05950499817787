"""What a history takes for an error that a step explains, and when its nemesis sees that somebody is held up."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.history import History, Role
from tests.faults.nemesis import hold_up
from tests.faults.plan import draw


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
