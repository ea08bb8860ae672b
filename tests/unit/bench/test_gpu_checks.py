"""Part `checks` of `hotrow bench gpu` finds what a table does wrong; that it passes is a test of test_gpu_bench.py."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.bench.gpu import checks, table_calls, working_set
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.table_calls import Case, TableCalls
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store import RamTier
from hotrow.store.applied import Applied
from hotrow.store.hbm import HbmPlan, HbmRows, HbmTier

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PLAN = GpuPlan().quick()
SGD = UpdateRule("sgd", lr=0.1)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, for idle lanes in the interpreter


class WithoutPins(HbmTier):
    def find_or_init(self, *arguments: Any, pinned: Sequence[HbmPlan] = (), **settings: Any) -> HbmPlan:
        return super().find_or_init(*arguments, **settings)


class LosesEvicted(HbmTier):
    def find_or_init(self, *arguments: Any, **settings: Any) -> HbmPlan:
        plan = super().find_or_init(*arguments, **settings)
        plan.evicted = None
        return plan


class LosesAGradient(HbmTier):
    def apply(self, keys: Any, gradients: torch.Tensor, *rest: Any, **settings: Any) -> Applied | None:
        gradients = gradients.clone()
        gradients[-1] += 1 / 16
        return super().apply(keys, gradients, *rest, **settings)


class TakesSumsForMeans(HbmTier):
    def pool(
        self, plan: Any, offsets: Any = None, mode: Any = "sum", dtype: Any = torch.float32, **_: Any
    ) -> torch.Tensor:
        return super().pool(plan, offsets, "sum", dtype)


class ErasesNothing(HbmTier):
    def erase(self, keys: torch.Tensor) -> int:
        return int(self.find(torch.unique(keys)).present.sum())


class ForgetsState(HbmTier):
    def put_and_evict(self, keys: Any, values: Any, state: Any = None, *rest: Any, **settings: Any) -> HbmPlan:
        return super().put_and_evict(keys, values, None, *rest, **settings)


ADAGRAD = UpdateRule("adagrad", lr=0.1)


@pytest.mark.parametrize(
    ("tier", "rule", "fault"),
    [
        (WithoutPins, SGD, "a row in use was evicted"),
        (LosesEvicted, SGD, "beside free slots"),
        (LosesAGradient, SGD, "not close"),
        (TakesSumsForMeans, SGD, "not close"),
        (ErasesNothing, SGD, "rows, its twin"),
        (ForgetsState, ADAGRAD, "not close"),
    ],
)
def test_a_table_that_errs_is_found_out(
    tier: type[HbmTier], rule: UpdateRule, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_calls, "HbmTier", tier)
    with pytest.raises(AssertionError, match=fault):
        TableCalls(Case(3, rule, one_bucket=True), DEVICE, replace(PLAN, check_calls=20), seed=1).run()


@pytest.mark.parametrize(("promised", "other"), [("lru", "lfu"), ("lfu", "lru")])
def test_a_wrong_choice_of_evicted_rows_is_found_out(promised: Any, other: Any) -> None:
    calls = TableCalls(Case(1, SGD, promised, one_bucket=True), DEVICE, replace(PLAN, check_calls=20), seed=1)
    calls.tier = HbmTier(replace(calls.spec, eviction=other), DEVICE)
    with pytest.raises(AssertionError, match=f"{promised.upper()} evicted a row"):
        calls.run()


def test_a_failure_names_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_calls, "HbmTier", LosesAGradient)
    with pytest.raises(
        AssertionError, match=r"^call 0 of Case\(dim=1, rule=UpdateRule\(kind='sgd'.*: Tensor-likes are not close"
    ):
        checks.check(DEVICE, PLAN)


def test_rows_that_do_not_come_down_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(table: working_set.HostTable, rows: HbmRows) -> None:
        pass

    monkeypatch.setattr(working_set.HostTable, "write", nothing)
    with pytest.raises(AssertionError, match="not close"):
        working_set.check_working_set(DEVICE, PLAN)


@pytest.mark.parametrize("init", [hr.Uniform(bound=0.5), hr.Normal(std=0.5)], ids=["uniform", "normal"])
def test_first_values_are_those_of_the_store_in_memory(init: Any) -> None:
    out = np.empty((2, 3), np.float32)
    RamTier(hr.Table(dim=3, init=init)).find_or_init(np.array([0, 2**64 - 1], np.uint64), out)
    assert out.tolist() == np.array(checks.FIRST_VALUES[init.name], np.float32).tolist()
