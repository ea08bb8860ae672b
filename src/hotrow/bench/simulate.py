"""`hotrow bench simulate`: how much processor time virtual time costs.

Thousands of workers that compute nothing, a hundred that compute real gradients beside plain training of the same
samples, and every mode. Seconds are those of the processor, so that other programs on the machine disturb little; what
is compared has run in the same round, and the median over the rounds counts.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from hotrow.bench.machine import provenance
from hotrow.bench.report import rounded
from hotrow.bench.rounds import WARM_UP_ROUNDS, BenchProgress, Contestant, Figures, interleave, median_ratio
from hotrow.bench.simulate_plan import SimulatePlan
from hotrow.bench.workload import torch_threads
from hotrow.data.batch import Batch
from hotrow.modes import GBA, MODES, Async, Mode, mode_of
from hotrow.modes.base import Apply, GradientPart
from hotrow.optim.sparse import Adagrad
from hotrow.reproduce.asgd_figure_3 import POISSON
from hotrow.reproduce.task import Model, PaperHyper, TrainingTask
from hotrow.sim import ClusterConfig, LogNormal, SimCluster, Speeds
from hotrow.sim.leases import Batches

UNEVEN = Speeds(sample_s=1e-3, machines=LogNormal(sigma=0.1), batches=LogNormal(sigma=0.3))
OWN_SETTINGS = {"backup_workers": "backups"}  # a tenth of the workers; other modes go as they are
HYPER = PaperHyper(rows=Adagrad(lr=0.05), dense="Adam", dense_settings={"lr": 0.001, "fused": True})


def measure(plan: SimulatePlan, watch: BenchProgress) -> Figures:
    """All figures, flat."""
    return {**measure_staleness(plan, watch), **measure_modes(plan, watch), **measure_training(plan, watch)}


def measure_staleness(plan: SimulatePlan, watch: BenchProgress) -> Figures:
    """Async with thousands of workers and nothing but staleness."""
    watch.stage(f"{plan.many:,} asynchronous workers", plan.rounds)
    config = ClusterConfig(workers=plan.many, local_batch=1, speeds=POISSON)

    def run(turn: int) -> None:
        spare = 4 * plan.many  # nobody runs out of data
        SimCluster(Async(), config, data=plan.updates + spare, seed=turn).run(until_samples=plan.updates)

    taken = []
    for turn in range(plan.rounds):
        taken.append(processor_timed(run)(turn))
        watch.tick()
    seconds = float(np.median(taken))
    return {"staleness_s": seconds, "staleness_updates_per_s": plan.updates / seconds}


def measure_modes(plan: SimulatePlan, watch: BenchProgress) -> Figures:
    """Updates per second of each mode, counted by their rows' gradients."""
    watch.stage(f"every mode, {plan.several:,} workers", plan.rounds + WARM_UP_ROUNDS)
    config = ClusterConfig(workers=plan.several, local_batch=1, speeds=UNEVEN)

    def counted(mode: Mode) -> Contestant:
        return processor_timed(lambda turn: SimCluster(mode, config, data=plan.mode_updates, seed=turn).run())

    contestants = {name: counted(_mode(name, plan)) for name in MODES}
    seconds = interleave(contestants, plan.rounds, watch, burst=1)
    return {f"{name}_updates_per_s": plan.mode_updates / float(np.median(taken)) for name, taken in seconds.items()}


def measure_training(plan: SimulatePlan, watch: BenchProgress) -> Figures:
    """Real gradients of a DeepFM in virtual time, beside a plain loop over the same batches."""
    watch.stage(f"a DeepFM on {plan.training:,} workers", plan.rounds + WARM_UP_ROUNDS)
    batches = training_batches(plan)
    with torch_threads(1):
        contestants: dict[str, TrainingLoopPeer] = {
            "plain": PlainLoop(plan, batches),
            "async": Simulated(plan, batches, Async()),
            "gba": Simulated(plan, batches, GBA()),
        }
        timed = {name: processor_timed(each.train) for name, each in contestants.items()}
        seconds = interleave(timed, plan.rounds, watch, burst=1)
        for each in contestants.values():
            each.model.close()
    samples = plan.batches * plan.local_batch
    figures: Figures = {
        f"train_{name}_samples_per_s": samples / float(np.median(each)) for name, each in seconds.items()
    }
    return figures | {
        f"train_{name}_vs_plain": median_ratio(seconds["plain"], seconds[name]) for name in ("async", "gba")
    }


class TrainingLoopPeer(ABC):
    """A contestant with a model of its own, that it trains on in every round."""

    def __init__(self, plan: SimulatePlan, batches: Sequence[Batch]) -> None:
        self.plan, self.batches = plan, batches
        self.model = Model(training_task(plan), HYPER, seed=1)
        self.step = self.samples = 0

    @abstractmethod
    def train(self, turn: int) -> None:
        """On all batches."""


class PlainLoop(TrainingLoopPeer):
    """One worker: look up, compute, apply, batch after batch."""

    def train(self, turn: int) -> None:
        server, learner, client = self.model.server, self.model.learner, self.model.tables
        for batch in self.batches:
            self.samples += len(batch)
            server.park(self.step, learner.learn(batch, client.lookup(batch, learn=True), client))
            alone = GradientPart(self.step, self.step, self.step, len(batch), 1.0)
            server.apply(Apply("both", self.step, (alone,)), samples=self.samples)
            self.step += 1


class Simulated(TrainingLoopPeer):
    """Many workers in virtual time."""

    def __init__(self, plan: SimulatePlan, batches: Sequence[Batch], mode: Mode) -> None:
        super().__init__(plan, batches)
        self._mode = mode
        self._config = ClusterConfig(workers=plan.training, local_batch=plan.local_batch, speeds=UNEVEN)

    def train(self, turn: int) -> None:
        work = self.model.work
        cluster = SimCluster(
            self._mode,
            self._config,
            data=Batches((None, batch) for batch in self.batches),
            work=work,
            seed=turn,
            step=self.step,
            samples=self.samples,
            watchers=[work],
        )
        result = cluster.run()
        self.step += result.steps
        self.samples += result.samples_applied


def training_task(plan: SimulatePlan) -> TrainingTask:
    """The model and its stream."""
    return TrainingTask(
        days=1,
        train_rows=plan.batches * plan.local_batch,
        test_rows=0,
        features=plan.features,
        numbers=plan.numbers,
        ids=plan.ids,
        dim=plan.dim,
        model_settings={"hidden": list(plan.hidden)},
    )


def training_batches(plan: SimulatePlan) -> list[Batch]:
    """All samples of a round, cut into local batches, in memory."""
    rows = training_task(plan).train(seed=1, day=0)
    size = plan.local_batch
    return [rows.slice(start, start + size) for start in range(0, len(rows), size)]


def processor_timed(run: Callable[[int], object]) -> Contestant:
    """A contestant whose seconds are those that the processor worked for this process."""

    def contestant(turn: int) -> float:
        start = time.process_time()
        run(turn)
        return time.process_time() - start

    return contestant


def _mode(name: str, plan: SimulatePlan) -> Mode:
    own = {OWN_SETTINGS[name]: plan.several // 10} if name in OWN_SETTINGS else {}
    return mode_of({"name": name, **own})


def document(plan: SimulatePlan, figures: Figures) -> dict[str, Any]:
    """Everything worth keeping, flat: the figures, then what they depend on."""
    return {**rounded(figures), "job": {**asdict(plan), "hidden": list(plan.hidden)}, **provenance("hotrow")}


def summary(plan: SimulatePlan, figures: Figures) -> Group:
    """The result as a person reads it."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", style="dim")
    for words, key, unit in _lines(plan):
        value = figures[key] or 0.0
        table.add_row(words, f"{value:,.0f}" if value >= 100 else f"{value:.2f}", unit)
    return Group(Text(headline(plan), style="bold"), table)


def headline(plan: SimulatePlan) -> str:
    """The job in one line."""
    return f"seconds of the processor, median of {plan.rounds} rounds"


def _lines(plan: SimulatePlan) -> list[tuple[str, str, str]]:
    training = f"DeepFM, {plan.training:,} workers with {plan.local_batch:,} samples"
    return [
        (f"{plan.many:,} workers, async, {plan.updates:,} updates", "staleness_s", "s"),
        ("the same", "staleness_updates_per_s", "updates/s"),
        *((f"{plan.several:,} workers, {name}", f"{name}_updates_per_s", "updates/s") for name in MODES),
        ("DeepFM, plain loop", "train_plain_samples_per_s", "samples/s"),
        (f"{training}, async", "train_async_samples_per_s", "samples/s"),
        ("beside the plain loop", "train_async_vs_plain", "x"),
        (f"{training}, gba", "train_gba_samples_per_s", "samples/s"),
        ("beside the plain loop", "train_gba_vs_plain", "x"),
    ]
