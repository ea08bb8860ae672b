"""One of two trainers is slowed: GBA goes on with what both can do, Sync at the pace of the slower one."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.cluster.stretches import contestant, part_of, race, stretch, trainer_of
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.data.source import Source
from hotrow.modes import GBA, Sync
from hotrow.nn.inputs import Inputs
from hotrow.runtime.settings import Ray
from hotrow.trainer import Trainer
from hotrow.types import RoleId


class Paced(nn.Module):
    """A network that waits before each batch it trains on, where a file with the number of its process says so."""

    def __init__(self, network: nn.Module, folder: Path) -> None:
        super().__init__()
        self.network, self.folder = network, str(folder)

    def forward(self, x: Inputs) -> Tensor:
        if self.training:
            time.sleep(self._pause_s())
        odds: Tensor = self.network(x)
        return odds

    def _pause_s(self) -> float:
        try:
            with open(os.path.join(self.folder, str(os.getpid()))) as told:
                return float(told.read())
        except FileNotFoundError:
            return 0.0


def measure(plan: ClusterPlan, source: Source, folder: Path, watch: BenchProgress) -> Figures:
    """Both together in GBA and Sync, and each of them alone."""
    hidden = plan.networks.get("wide", plan.networks["narrow"])
    mode = GBA()
    with ExitStack() as stack:
        made = partial(trainer_of, plan, hidden, wrapped=partial(Paced, folder=folder))
        both = stack.enter_context(closing(made(Ray(trainers=2, shards=2))))
        fast = stack.enter_context(closing(made(Ray(trainers=1, shards=2))))
        slow = stack.enter_context(closing(made(Ray(trainers=1, shards=2))))
        pause_s = (plan.slowed - 1) * _own_seconds(plan, source, fast)
        for trainer, number in ((both, 1), (slow, 0)):
            stack.enter_context(_slowed(trainer, number, folder, pause_s))
        contestants = {
            "gba": contestant(plan, source, both, mode),
            "sync": contestant(plan, source, both, Sync()),
            "fast": contestant(plan, source, fast, mode),
            "slow": contestant(plan, source, slow, mode),
        }
        rates = {
            name: 1 / each
            for name, each in race(plan, contestants, f"a straggler {plan.slowed} times as slow", watch).items()
        }
    together = rates["fast"] + rates["slow"]
    return {
        "gba_straggler_kept": float(np.median(rates["gba"] / together)),
        "sync_straggler_kept": float(np.median(rates["sync"] / together)),
        "sync_straggler_pace": float(np.median(rates["sync"] / (2 * rates["slow"]))),
        "straggler_pace": float(np.median(rates["slow"] / rates["fast"])),
        **{f"straggler_{name}_samples_per_s": plan.samples * float(np.median(each)) for name, each in rates.items()},
    }


def _own_seconds(plan: ClusterPlan, source: Source, trainer: Trainer) -> float:
    """What a batch takes one trainer that nobody slows, lookups and all."""
    trainer.switch(GBA())
    paces = [stretch(plan, trainer, part_of(plan, source, turn)).seconds for turn in range(2)]
    return min(paces) * (plan.samples // 2)


@contextmanager
def _slowed(trainer: Trainer, number: int, folder: Path, pause_s: float) -> Iterator[None]:
    facts = trainer.cluster
    assert facts is not None
    told = folder / str(facts.roles[RoleId("trainer", number)].pid)
    told.write_text(f"{pause_s:.6f}")
    try:
        yield
    finally:
        told.unlink()
