"""Check of a working set: batches train in GPU memory above a table in host memory, as they would in torch alone."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.table_twin import TableTwin, check_close, require
from hotrow.bench.gpu.workload import exact_gradients, keys_of
from hotrow.kernels.update_rule import StepScalars, UpdateRule
from hotrow.store.hbm import HbmRows, HbmSpec, HbmTier, WorkingSet

BATCHES = 6
RULE = UpdateRule("adam", lr=0.01)


class HostTable:
    """All rows in host memory: the tier below."""

    def __init__(self, twin: TableTwin) -> None:
        self._ids_of, self.keys = twin.ids_of, twin.keys
        self.values, self.state = twin.values.clone(), twin.state.clone()
        self.fields = {name: column.clone() for name, column in twin.fields.items()}

    def read(self, keys: Tensor, samples: int) -> HbmRows:
        ids = self._ids_of(keys)
        fields = {name: column[ids] for name, column in self.fields.items()}
        return HbmRows(keys, self.values[ids], self.state[ids], fields)

    def write(self, rows: HbmRows) -> None:
        ids = self._ids_of(rows.keys)
        self.values[ids], self.state[ids] = rows.values, rows.state
        for name, column in rows.fields.items():
            self.fields[name][ids] = column

    def all_rows(self) -> HbmRows:
        return self.read(self.keys, 0)


def check_working_set(device: torch.device, plan: GpuPlan) -> None:
    """Rows of the host after six batches of two parts, each read ahead, are those of updates in torch."""
    ids = plan.check_ids
    spec = HbmSpec(dim=16, capacity=4 * ids, rule=RULE, track_changes=True, group_slots=plan.check_group)
    twin = TableTwin(spec, keys_of(torch.arange(8 * ids)))
    random = torch.Generator().manual_seed(plan.seed)
    twin.there.fill_(True)
    twin.values.copy_(exact_gradients(len(twin.keys), spec.dim, random))
    twin.fields["version"].fill_(1)
    host = HostTable(twin)
    batches = list(torch.randint(8 * ids, (BATCHES, 2, ids), generator=random))
    with WorkingSet(HbmTier(spec, device), host) as working:
        for step, (batch, following) in enumerate(pairwise([*batches, None])):
            assert batch is not None
            working.begin(twin.keys[batch.flatten()].to(device))
            if following is not None:
                working.prefetch(twin.keys[following.flatten()].to(device))
            for part in batch:
                _train(working, twin, part, step, random)
    twin.check_rows(host.all_rows())
    require(working.upper.stats().evicted > 0, "no row was evicted from the working set")  # type: ignore[attr-defined]


def _train(working: WorkingSet[Any], twin: TableTwin, ids: Tensor, step: int, random: torch.Generator) -> None:
    device = working.upper.device
    out = torch.empty(len(ids), twin.spec.dim, device=device)
    plan = working.find(twin.keys[ids].to(device), out)
    check_close(out.cpu(), twin.values[ids])
    gradients = exact_gradients(len(ids), twin.spec.dim, random)
    working.apply(plan, gradients.to(device), step=step)
    twin.apply(ids, gradients.double(), StepScalars.of(RULE, step, samples=0, lr_scale=1.0))
