"""Results exactly once, in one Delta table and one queue that two real applications write: kill -9, zombies, fresh checkpoints, a resize."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign import Campaign
from tests.processes import Pool


@pytest.mark.parametrize(
    ("pool", "messages", "kills", "zombies", "resizes"),
    [
        ("plain", 10_000, 5, 2, True),
        pytest.param("spark", 200_000, 30, 10, True, marks=pytest.mark.long),
    ],
    indirect=["pool"],
)
def test_each_result_once(
    pool: Pool,
    tmp_path: Path,
    messages: int,
    kills: int,
    zombies: int,
    resizes: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    campaign = Campaign(pool, tmp_path, seed=messages)
    campaign.run(messages, kills, zombies, resizes)
    told = campaign.figures()
    with capsys.disabled():
        print(f"\n{told}")
