"""A training mode of one's own: in the simulator with a thousand workers, then in a Trainer with four.

    python examples/own_mode.py

Every gradient is applied on arrival, but one that is more than `bound` steps late is dropped.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import torch
from pydantic import Field
from torch import Tensor, nn

import hotrow as hr
from hotrow.data.schema import Schema
from hotrow.data.source import ArrowSource
from hotrow.modes import (
    Apply,
    Discipline,
    Drain,
    Drop,
    Effect,
    Ended,
    Event,
    Grants,
    Lost,
    Mode,
    Park,
    Pushed,
    Ready,
    Resume,
    RunFacts,
    part,
)
from hotrow.sim import ClusterConfig, LogNormal, SimCluster, Speeds


class DropStale(Mode):
    """The settings: frozen, checked when made."""

    name: Literal["drop_stale"] = "drop_stale"
    bound: int = Field(default=4, ge=0)

    def samples_per_step(self, facts: RunFacts) -> int:
        return facts.local_batch

    def check(self, facts: RunFacts) -> None:
        """Any local batch will do."""

    def start(self, facts: RunFacts) -> Discipline:
        return DropStaleRun(self.bound, step=facts.step, grants=Grants(given=facts.grants))


@dataclass(slots=True)
class DropStaleRun:
    """The discipline of the mode: its fields are its whole state."""

    bound: int
    step: int = 0
    grants: Grants = field(default_factory=Grants)
    waiting: list[int] = field(default_factory=list)  # workers that were ready during a drain
    draining: bool = False

    @property
    def counts(self) -> dict[str, int]:
        return self.grants.counts

    def on(self, event: Event) -> list[Effect]:
        match event:
            case Ready(worker) if self.draining:
                self.waiting.append(worker)
                return [Park(worker)]
            case Ready(worker):
                return [self.grants.give(worker, token=self.step)]
            case Pushed() as push:
                return self._pushed(push)
            case Lost(worker) | Ended(worker):
                self.waiting = [each for each in self.waiting if each != worker]
                return self.grants.lose(worker) if isinstance(event, Lost) else []
            case Drain():
                self.draining = True
                return []
            case Resume():
                self.draining = False
                ready, self.waiting = self.waiting, []
                return [self.grants.give(worker, token=self.step) for worker in ready]
            case _:
                return []  # a worker that joins changes nothing

    def _pushed(self, push: Pushed) -> list[Effect]:
        if not self.grants.take(push):
            return []  # a second copy, or of a worker that was given up
        if self.step - push.token > self.bound:
            return [Drop(push.grant, "late")]
        self.step += 1
        return [Apply("both", self.step - 1, (part(push, weight=1.0),))]


def simulate(workers: int = 1000, samples: int = 2_000_000) -> None:
    speeds = Speeds(batch_s=0.1, sample_s=0.0, batches=LogNormal(sigma=0.5))
    for bound in (500, 1000, 2000):
        config = ClusterConfig(workers=workers, local_batch=100, speeds=speeds)
        found = SimCluster(DropStale(bound=bound), config, data=samples).run().statistics
        late = found.dropped.get("late", 0)
        print(f"bound {bound:>5,}: {found.applied:>6,} batches applied, {late:>6,} dropped as late")


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: hr.Inputs) -> Tensor:
        odds: Tensor = self.layers(x.flat).squeeze(1)
        return odds


def train(rows: int = 20_000) -> None:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    users, items = draw.integers(0, 200, rows), draw.integers(0, 100, rows)
    clicked = draw.random(rows) < np.where((users + items) % 3 == 0, 0.9, 0.2)
    clicks = pa.table({"clicked": clicked.astype(np.int64), "user": users, "item": items})
    source = ArrowSource(clicks, Schema(label="clicked", ids=["user", "item"]))
    table = hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.1), init=hr.Normal(std=0.1))
    trainer = hr.Trainer(Clicks(), table, mode=DropStale(bound=3), workers=4, local_batch=50, global_batch=200)
    for _ in trainer.fit(source):
        pass
    found = trainer.statistics
    print(f"trained: {found.applied:,} batches applied, {found.dropped.get('late', 0):,} dropped as late")
    trainer.close()


if __name__ == "__main__":
    simulate()
    train()
