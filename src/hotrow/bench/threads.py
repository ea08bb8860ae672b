"""`hotrow bench threads`: the parts of a table's step on 1, 2, 4, … threads, beside torch's whole step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from rich.table import Table as Shown

from hotrow.bench.growth import fill
from hotrow.bench.ids import keys_of, zipf_batches
from hotrow.bench.machine import provenance
from hotrow.bench.peers import EPS
from hotrow.bench.plan import StorePlan
from hotrow.bench.rounds import WARM_UP_ROUNDS, BenchProgress, Contestant, interleave, timed
from hotrow.bench.torch_peers import TorchPeer
from hotrow.bench.workload import torch_threads
from hotrow.config import Table
from hotrow.obs.machine import cores
from hotrow.optim.sparse import Adagrad
from hotrow.store import LookupPlan, RamTier

Point = dict[str, float]
BURST = 2  # turns in a row
PARTS = ("plan", "find", "apply")  # of a step, in this order


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadsPlan:
    """Sizes of one run."""

    rows: int = 10_000_000
    dims: tuple[int, ...] = (16, 64)
    batches: tuple[int, ...] = (106_496, 851_968)  # ids of a batch: 26 features of 4,096 and of 32,768 samples
    most: int = 0  # threads; 0: as many as there are cores
    rounds: int = 12
    pool: int = 6  # different batches, taken in turn
    exponent: float = 1.05
    lr: float = 0.05

    def quick(self) -> "ThreadsPlan":
        """The same in seconds; its figures say that everything works, and no more."""
        return replace(self, rows=50_000, dims=(4,), batches=(2_048, 20_480), rounds=2, pool=2)

    @property
    def threads(self) -> list[int]:
        """Powers of two up to `most`, and `most` itself."""
        most = self.most or cores()
        return sorted({*(2**power for power in range(most.bit_length()) if 2**power <= most), most})

    def check_memory(self) -> None:
        """Refuse a run that does not fit into memory."""
        StorePlan(rows=self.rows, dims=self.dims).check_memory()


class StepParts:
    """A step of our table, whose parts are contestants of their own; each uses what the one before it left."""

    def __init__(self, tier: RamTier, batches: Sequence[Any], gradients: Any) -> None:
        self._tier, self._batches, self._gradients = tier, batches, gradients
        self._out = torch.zeros(len(gradients), tier.dim)
        self._plans: dict[int, LookupPlan] = {}

    def plan(self, turn: int) -> None:
        self._plans = {turn: self._tier.batch(self._batches[turn % len(self._batches)].keys)}

    def find(self, turn: int) -> None:
        self._tier.find_or_init(self._plans[turn], self._out)

    def apply(self, turn: int) -> None:
        self._tier.apply(self._plans[turn], self._gradients)

    def contestant(self, threads: int, seconds: dict[str, list[float]]) -> Contestant:
        """The whole step on so many threads; the seconds of its parts are added to `seconds`."""
        timers = dict(zip(PARTS, map(timed, (self.plan, self.find, self.apply)), strict=True))

        def step(turn: int) -> float:
            self._tier.threads = threads
            taken = {part: timer(turn) for part, timer in timers.items()}
            for part, each in taken.items():
                seconds.setdefault(part, []).append(each)
            return sum(taken.values())

        return step


def measure_threads(plan: ThreadsPlan, watch: BenchProgress) -> list[Point]:
    """One point for each number of threads, with figures named as d16_106496_mids."""
    points: dict[int, Point] = {threads: {"threads": threads} for threads in plan.threads}
    for dim in plan.dims:
        tier = RamTier(Table(dim=dim, optimizer=Adagrad(lr=plan.lr, eps=EPS)), threads=max(plan.threads))
        ids = min(plan.batches)
        watch.stage(f"dim {dim}: {plan.rows:,} rows", -(-plan.rows // ids))
        fill(tier, keys_of(np.random.default_rng(1).permutation(plan.rows)), np.zeros((ids, dim), np.float32), watch)
        peer = TorchPeer(plan.rows, dim, lr=plan.lr)
        for size in plan.batches:
            for threads, found in _measure_batch(plan, tier, peer, size, watch).items():
                points[threads] |= {f"d{dim}_{size}_{name}": value for name, value in found.items()}
        tier.close()
    return list(points.values())


def _measure_batch(
    plan: ThreadsPlan, tier: RamTier, peer: TorchPeer, size: int, watch: BenchProgress
) -> dict[int, Point]:
    batches = zipf_batches(plan.rows, size, plan.pool, exponent=plan.exponent)
    gradients = torch.from_numpy(np.random.default_rng(0).normal(size=(size, tier.dim)).astype(np.float32))
    ours = StepParts(tier, batches, gradients)
    parts: dict[int, dict[str, list[float]]] = {threads: {} for threads in plan.threads}
    contestants: dict[str, Contestant] = {}
    for threads in plan.threads:
        contestants[f"ours {threads}"] = ours.contestant(threads, parts[threads])
        contestants[f"torch {threads}"] = _torch_step(peer, batches, gradients, threads)
    watch.stage(f"dim {tier.dim}: {size:,} ids a batch", plan.rounds + WARM_UP_ROUNDS)
    seconds = interleave(contestants, plan.rounds, watch, burst=BURST)
    found: dict[int, Point] = {}
    warm = WARM_UP_ROUNDS * BURST
    for threads in plan.threads:
        taken, torchs = seconds[f"ours {threads}"], seconds[f"torch {threads}"]
        found[threads] = {f"{part}_ms": 1e3 * float(np.median(parts[threads][part][warm:])) for part in PARTS}
        found[threads] |= {
            "mids": size / float(np.median(taken)) / 1e6,
            "torch_mids": size / float(np.median(torchs)) / 1e6,
            "vs_torch": float(np.median(torchs / taken)),
        }
    return found


def _torch_step(peer: TorchPeer, batches: Sequence[Any], gradients: torch.Tensor, threads: int) -> Contestant:
    step = timed(lambda turn: peer.step(batches[turn % len(batches)].rows, gradients))

    def contestant(turn: int) -> float:
        with torch_threads(threads):
            return step(turn)

    return contestant


def document(plan: ThreadsPlan, points: Sequence[Point]) -> dict[str, Any]:
    """Everything worth keeping."""
    job = {"rows": plan.rows, "dims": list(plan.dims), "batches": list(plan.batches), "rounds": plan.rounds}
    shown = [{key: round(value, 4) for key, value in point.items()} for point in points]
    return {"points": shown, "job": job, **provenance("hotrow")}


def headline(plan: ThreadsPlan) -> str:
    """The job in one line."""
    return f"Adagrad, Zipf {plan.exponent} over {plan.rows:,} rows, medians of {plan.rounds} rounds"


def summary(plan: ThreadsPlan, points: Sequence[Point]) -> Shown:
    """The result as a person reads it: a line for each batch and number of threads."""
    table = Shown(box=None, pad_edge=False, header_style="bold", title=headline(plan), title_justify="left")
    for name in ("dim", "ids", "threads", "plan ms", "find ms", "apply ms", "M ids/s", "torch", "times torch"):
        table.add_column(name, justify="right")
    for dim in plan.dims:
        for size in plan.batches:
            for point in points:
                found = {name: point[f"d{dim}_{size}_{name}"] for name in (*(f"{part}_ms" for part in PARTS), "mids")}
                torchs = point[f"d{dim}_{size}_torch_mids"], point[f"d{dim}_{size}_vs_torch"]
                cells = [*(f"{value:.2f}" for value in found.values()), f"{torchs[0]:.2f}", f"{torchs[1]:.1f}"]
                table.add_row(str(dim), f"{size:,}", f"{int(point['threads'])}", *cells)
    return table
