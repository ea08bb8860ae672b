"""Part `models`: training steps of DeepFM and DLRM with rows in GPU memory, beside the same network in plain torch.

Rates are in millions of samples per second, with ids from one Zipf stream and matrices in TF32 on both sides. `_ieee`
has float32 matrices, `_bf16` bfloat16 for rows and network, `_compiled` the dense part through `torch.compile`. Torch
is the faster of its two tables (training.py). `_ceiling_msamples` is what the matrix products of the network at the
rate of a large product, and the rows at the rate of a copy, would take one after the other.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from hotrow.bench.gpu.auc import auc_figures
from hotrow.bench.gpu.clock import EventClock
from hotrow.bench.gpu.graph import GraphTraining
from hotrow.bench.gpu.networks import NETWORKS, matrix_flops
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.table_twin import require
from hotrow.bench.gpu.training import (
    ADAGRAD,
    FoldedTable,
    OwnTable,
    RowTable,
    SparseTable,
    Training,
    TrainingBatch,
    adam,
    made_batches,
    seeded,
)
from hotrow.bench.gpu.workload import keys_of, matrix_precision, zipf_ranks
from hotrow.store.hbm import HbmSpec, HbmTier

SMOOTH = replace(ADAGRAD, initial=0.1)  # steps in proportion to gradients: no sign of a rounding error is one
ROWS_DIFFER = 0.05  # of the norm of their changes; rounding makes 0.003 in DLRM, an eighth of lost gradients 0.3
SLOW_ROUNDS = 3  # of torch's sparse table, which takes tens of milliseconds a step
ROW_PASSES = 5  # of the rows of a batch: written, read forward and backward; their gradients written, read
UPDATE_PASSES = 4  # of distinct rows: value and state, read and written


def check(device: torch.device, plan: GpuPlan) -> None:
    """Losses are those of plain torch on the CPU, within 1e-4 for all steps, in float32; rows have changed alike."""
    for name in NETWORKS:
        compare_training(name, device, plan)


def compare_training(name: str, device: torch.device, plan: GpuPlan) -> None:
    """Our steps on the device beside torch's on the CPU, SGD for the network.

    Losses of DLRM hardly depend on its rows in so few steps, so the changes of rows are compared too.
    """
    small = replace(plan, ids=plan.check_samples * plan.fields, distinct=plan.check_rows, batches=plan.check_steps)
    ranks, cpu = zipf_ranks(torch.device("cpu"), small), torch.device("cpu")
    tier = HbmTier(HbmSpec(dim=plan.dim, capacity=max(128, 2 * plan.check_rows), rule=SMOOTH, amount=0.2), device)
    keys = keys_of(torch.arange(plan.check_rows, device=device))
    before, after = (torch.empty(plan.check_rows, plan.dim, device=device) for _ in range(2))
    tier.find_or_init(keys, before)
    in_torch = FoldedTable(before.cpu().clone(), SMOOTH)
    losses = []
    for place, table in ((device, OwnTable(tier)), (cpu, in_torch)):
        make = partial(NETWORKS[name], plan.fields, plan.dim, kernels=isinstance(table, OwnTable))
        network = seeded(make, place, plan.seed)
        training = Training(network, table, torch.optim.SGD(network.parameters(), lr=0.02))
        steps = [batch.to(place) for batch in made_batches(ranks, small.check_samples, plan.seed)]
        losses.append(torch.stack([training.step(batch) for batch in steps]).cpu())
    torch.testing.assert_close(*losses, rtol=0, atol=1e-4)
    tier.find(keys, after)
    change, wanted = (after - before).cpu().double(), (in_torch.values - before.cpu()).double()
    difference = float((change - wanted).norm() / wanted.norm())
    require(difference < ROWS_DIFFER, f"{name}: changes of rows differ from torch's by {difference:.2%}")


def measure(clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
    large = replace(plan, ids=plan.samples * plan.fields)
    batches = made_batches(zipf_ranks(clock.device, large), plan.samples, plan.seed)
    copy, rates = clock.copy_bytes_per_s(plan.copy_bytes), {}
    for precision, dtype in (("tf32", torch.float32), ("bf16", torch.bfloat16)):
        rates[precision] = clock.matrix_flops_per_s(plan.matrix, dtype)
        yield f"matrix_{precision}_tflops", rates[precision] / 1e12
    measured = _Steps(clock, large, batches)
    for name in NETWORKS:
        yield from measured.own(name)
        distinct = len(torch.unique(batches[0].ids))
        network = NETWORKS[name](plan.fields, plan.dim, kernels=True)
        for suffix, rate, width in (("", rates["tf32"], 4), ("_bf16", rates["bf16"], 2)):
            row_bytes = ROW_PASSES * len(batches[0].ids) * width + UPDATE_PASSES * distinct * 4
            least_s = plan.samples * matrix_flops(network) / rate + row_bytes * plan.dim / copy
            yield f"{name}{suffix}_ceiling_msamples", plan.samples / least_s / 1e6
    measured.free()
    yield from measured.plain()
    yield from auc_figures(clock.device, plan)
    for name in NETWORKS if clock.device.type == "cuda" else ():  # last: what fails leaves the other figures
        yield from measured.graphs(name)
    for name in NETWORKS:
        yield from measured.compiled(name)


class _Steps:
    """Times of whole training steps."""

    def __init__(self, clock: EventClock, plan: GpuPlan, batches: list[TrainingBatch]) -> None:
        self.clock, self.plan, self.batches = clock, plan, batches
        self._tier: HbmTier | None = None
        self._rates: dict[str, float] = {}
        self._torch: dict[str, float] = {}

    def _table(self, dtype: torch.dtype = torch.float32) -> OwnTable:
        if self._tier is None:
            self._tier = HbmTier(HbmSpec(dim=self.plan.dim, capacity=self.plan.rows, rule=ADAGRAD), self.clock.device)
        return OwnTable(self._tier, dtype)

    def free(self) -> None:
        """Give the memory of our table to torch's."""
        self._tier = None

    def own(self, name: str) -> Iterator[tuple[str, float]]:
        self._rates[name] = rate = self._rate(name, self._table())
        yield f"{name}_msamples", rate
        yield f"{name}_ieee_msamples", self._rate(name, self._table(), precision="highest")
        yield f"{name}_bf16_msamples", (bf16 := self._rate(name, self._table(torch.bfloat16), torch.bfloat16))
        yield f"{name}_bf16_gain", bf16 / rate

    def compiled(self, name: str) -> Iterator[tuple[str, float]]:
        yield f"{name}_compiled_msamples", (rate := self._rate(name, self._table(), compiled=True))
        yield f"{name}_compiled_gain", rate / self._rates[name]
        half = self._table(torch.bfloat16)
        yield f"{name}_bf16_compiled_msamples", self._rate(name, half, torch.bfloat16, compiled=True)

    def graphs(self, name: str) -> Iterator[tuple[str, float]]:
        """The network as one CUDA graph, whose losses are those without one."""
        with matrix_precision("high"):
            losses = []
            for graph in (True, False):
                network, tier = self._network(name, kernels=True), self._fresh_tier()
                training: GraphTraining | Training = Training(network, OwnTable(tier), adam(network))
                if graph:
                    training = GraphTraining(network, tier, None, self.batches[0])
                losses.append(torch.stack([training.step(batch).clone() for batch in self.batches]))
            torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-3)
            for suffix, autocast in (("", None), ("_bf16", torch.bfloat16)):
                tier = self._table().tier
                replayed = GraphTraining(self._network(name, kernels=True), tier, autocast, self.batches[0])
                seconds = self.clock.seconds(partial(self._turn, replayed))
                yield f"{name}{suffix}_graph_msamples", (rate := self.plan.samples / seconds / 1e6)
                yield f"{name}{suffix}_graph_vs_torch", rate / self._torch[name]

    def _fresh_tier(self) -> HbmTier:
        """Room for the rows of all batches, which start alike in each."""
        rows = max(128, 2 * len(self.batches) * len(self.batches[0].ids))
        return HbmTier(HbmSpec(dim=self.plan.dim, capacity=rows, rule=ADAGRAD), self.clock.device)

    def _turn(self, training: "Training | GraphTraining", turn: int) -> None:
        training.step(self.batches[turn % len(self.batches)])

    def plain(self) -> Iterator[tuple[str, float]]:
        values = torch.zeros(self.plan.distinct, self.plan.dim, device=self.clock.device).normal_(std=0.01)
        folded, rates = FoldedTable(values), {}
        for name in NETWORKS:
            rates[name] = self._rate(name, folded)
            yield f"{name}_torch_folded_msamples", rates[name]
            yield f"{name}_torch_bf16_msamples", self._rate(name, folded, torch.bfloat16)
        del folded
        sparse = SparseTable(values)
        for name in NETWORKS:
            yield f"{name}_torch_sparse_msamples", (rate := self._rate(name, sparse))
            yield f"{name}_torch_msamples", (best := max(rate, rates[name]))
            yield f"{name}_vs_torch", self._rates[name] / best
            self._torch[name] = best

    def _rate(
        self,
        name: str,
        table: RowTable,
        autocast: torch.dtype | None = None,
        *,
        compiled: bool = False,
        precision: str = "high",
    ) -> float:
        network = self._network(name, kernels=isinstance(table, OwnTable))
        if compiled:
            torch.compiler.reset()  # past a number of variants of one function it gives up, and says so in a warning
            network.compile(backend=self.plan.compiler)
        training = Training(network, table, adam(network), autocast)
        with matrix_precision(precision):
            seconds = self.clock.seconds(
                partial(self._turn, training),
                rounds=SLOW_ROUNDS if isinstance(table, SparseTable) else None,
            )
        return self.plan.samples / seconds / 1e6

    def _network(self, name: str, *, kernels: bool) -> nn.Module:
        make = partial(NETWORKS[name], self.plan.fields, self.plan.dim, kernels=kernels)
        return seeded(make, self.clock.device, self.plan.seed)
