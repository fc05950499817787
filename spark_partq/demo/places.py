"""What lies where in the demo's folder, and how its queue and group are called."""

from __future__ import annotations

from pathlib import Path

from spark_partq.demo.knock_on import Outputs

QUEUE, GROUP = "flights", "knock-on"


class Places:
    """What lies where in the demo's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.days = root / "days"
        self.landing = root / "landing"
        self.store = root / "store"
        self.checkpoints = root / "checkpoints"
        self.outputs = Outputs(*(str(root / name) for name in ("followed", "deliveries")))
        self.logs = root / "logs"
        self.done = root / "acts_done"
        self.finished = root / "finished"

    @property
    def acts_done(self) -> int:
        """How many acts have happened: with the next one an interrupted run goes on."""
        return int(self.done.read_text()) if self.done.exists() else 0

    @acts_done.setter
    def acts_done(self, number: int) -> None:
        half_done = self.done.with_suffix(".writing")
        half_done.write_text(str(number))
        half_done.rename(self.done)
