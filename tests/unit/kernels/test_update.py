"""update_rows: the same rows and gradients give what the native store gives, in Triton and in torch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.errors import ConfigError, InputError
from hotrow.kernels.update import RowFields, StepScalars, UpdateRule, reference_update, update_rows
from hotrow.store import RamTier
from profiles import examples

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SWAP = hr.Swap(period=10, decay=0.5, floor=0.02)
SPECS = [
    hr.SGD(lr=0.1, l2=0.1, decay=0.2),
    hr.SGD(lr=0.1, clip=0.5),
    hr.Adagrad(lr=0.1, initial=0.1),
    hr.Adagrad(lr=0.1, eps=1e-3, eps_inside=True, swap=SWAP, clip=0.7),
    hr.Adagrad(lr=0.1, eps=0.0),
    hr.RowwiseAdagrad(lr=0.1, l2=0.1, swap=hr.Swap(period=7, decay=0.9)),
    hr.DecayedAdagrad(lr=0.1, rate=0.9, decay=0.1),
    hr.Adam(lr=0.01),
    hr.Adam(lr=0.01, beta1=0.0, swap=SWAP, l2=0.01),
    hr.Adam(lr=0.01, correction="global", decay=0.1),
]
FIELDS = ("version", "last_update", "period", "updates")


class TensorRows:
    """Rows of a fresh table as tensors: value and state side by side, and all fields."""

    def __init__(self, spec: Any, tier: RamTier, keys: np.ndarray[Any, Any], update: Callable[..., Any]) -> None:
        self.rule, self.update = UpdateRule.of(spec), update
        first = np.empty((len(keys), tier.dim), np.float32)
        tier.find_or_init(keys, first)
        slab = torch.full((len(keys), tier.dim + self.rule.state_dim(tier.dim)), self.rule.initial, device=DEVICE)
        self.values, self.state = slab[:, : tier.dim], slab[:, tier.dim :]
        self.values.copy_(torch.from_numpy(first))
        self.fields = {name: torch.zeros(len(keys), dtype=torch.int32, device=DEVICE) for name in FIELDS}
        self.fields["version"].fill_(1)
        self.refused = torch.zeros(1, dtype=torch.int64, device=DEVICE)

    def apply(self, slots: torch.Tensor, gradients: torch.Tensor, **when: Any) -> None:
        rows = (self.rule, self.values, self.state, slots.to(DEVICE), gradients.to(DEVICE), RowFields(**self.fields))
        self.update(*rows, refused=self.refused, **when)

    def check_equal(self, tier: RamTier) -> None:
        (rows,) = tier.export()
        order = np.argsort(rows.keys)
        np.testing.assert_allclose(self.values.cpu().numpy(), rows.values[order], rtol=3e-6, atol=1e-7)
        np.testing.assert_allclose(self.state.cpu().numpy(), rows.state[order], rtol=3e-6, atol=1e-9)
        for name, column in rows.fields.items():
            if name in FIELDS:
                assert self.fields[name].tolist() == column[order].tolist(), name


def by_reference(*rows: Any, step: int, samples: int, lr_scale: float, refused: torch.Tensor) -> None:
    rule, values, state, slots, gradients, fields = rows
    scalars = StepScalars.of(rule, step, samples, lr_scale)
    reference_update(rule, values, state, slots, gradients, fields, scalars, refused)


@pytest.mark.parametrize("update", [update_rows, by_reference], ids=["kernel", "reference"])
@pytest.mark.parametrize("spec", SPECS, ids=str)
@settings(max_examples=examples(15))
@given(data=st.data(), dim=st.sampled_from([1, 3, 8, 20]), seed=st.integers(0, 2**32 - 1))
def test_rows_are_those_of_the_native_store(
    spec: Any, update: Callable[..., Any], data: st.DataObject, dim: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    keys = np.arange(9, dtype=np.uint64)
    tier = RamTier(hr.Table(dim=dim, optimizer=spec, init=hr.Uniform(bound=1.0)))
    rows = TensorRows(spec, tier, keys, update)
    samples = refused = 0
    for step in range(data.draw(st.integers(1, 3))):
        slots = random.permutation(9)[: data.draw(st.integers(1, 9))]
        size = random.choice([0.1, 3, 1e20], p=[0.5, 0.4, 0.1])
        gradients = (size * random.normal(size=(len(slots), dim))).astype(np.float32)
        gradients[random.random(len(slots)) < 0.1] = random.choice([0.0, np.nan, np.inf])
        samples += data.draw(st.sampled_from([0, 9, 40]))
        when: dict[str, Any] = {"step": step, "samples": samples, "lr_scale": data.draw(st.sampled_from([1.0, 0.25]))}
        refused += tier.apply(keys[slots], gradients, **when).refused
        padded = np.vstack([gradients, np.full(dim, np.nan, np.float32)])  # of slot -1: skipped, not refused
        rows.apply(torch.from_numpy(np.append(slots, -1)), torch.from_numpy(padded), **when)
    rows.check_equal(tier)
    assert rows.refused.item() == refused


def test_a_version_after_the_largest_is_2_and_a_step_stays_at_the_largest() -> None:
    fields = RowFields(
        version=torch.tensor([-1, -2, 7], dtype=torch.int32), last_update=torch.zeros(3, dtype=torch.int32)
    )
    slots, ones = torch.tensor([0, 1]), torch.ones(2, 1)
    update_rows(UpdateRule("sgd", lr=1.0), torch.zeros(3, 1), None, slots, ones, fields, step=2**40)
    assert fields.version is not None
    assert fields.last_update is not None
    assert fields.version.tolist() == [2, -1, 7]
    assert fields.last_update.tolist() == [-1, -1, 0]


@pytest.mark.parametrize("update", [update_rows, by_reference], ids=["kernel", "reference"])
def test_a_row_that_stands_at_a_later_period_is_not_decayed_and_stays_there(update: Callable[..., Any]) -> None:
    rule = UpdateRule("adagrad", lr=1.0, swap_period=10, swap_decay=0.5)
    fields = RowFields(period=torch.tensor([3, 0, -1], dtype=torch.int32, device=DEVICE))  # -1: the largest uint32
    state = torch.full((3, 1), 8.0, device=DEVICE)
    rows = (
        rule,
        torch.zeros(3, 1, device=DEVICE),
        state,
        torch.arange(3, device=DEVICE),
        torch.zeros(3, 1, device=DEVICE),
    )
    refused = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    update(*rows, fields, step=0, samples=20, lr_scale=1.0, refused=refused)
    assert fields.period is not None
    assert state.flatten().tolist() == [8, 2, 8]
    assert fields.period.tolist() == [3, 2, -1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"state": None}, "state is missing: adam has 4 floats of it beside a row of 2"),
        ({"state": torch.zeros(3, 3)}, "state is torch.float32 (3, 3): must be torch.float32 (3, 4)"),
        ({"slots": torch.zeros(3, dtype=torch.int32)}, "slots is torch.int32 (3,): must be torch.int64 (any)"),
        ({"gradients": torch.zeros(4, 2)}, "gradients is torch.float32 (4, 2): must be torch.float32 (3, 2)"),
        ({"values": torch.zeros(2, 3).T}, "values has strides (1, 3): its last dimension must be contiguous"),
        ({"fields": None}, "fields.updates is missing: correction='row' counts the updates of a row"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_before_anything_changes(wrong: dict[str, Any], message: str) -> None:
    fit: dict[str, Any] = {
        "values": torch.zeros(3, 2),
        "state": torch.zeros(3, 4),
        "slots": torch.arange(3),
        "gradients": torch.ones(3, 2),
        "fields": RowFields(updates=torch.zeros(3, dtype=torch.int32)),
    }
    with pytest.raises(InputError) as error:
        update_rows(UpdateRule("adam", lr=0.1), **(fit | wrong))
    assert str(error.value) == f"update_rows: {message}"
    assert not fit["values"].any()


def test_an_optimizer_without_a_kernel_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(ConfigError, match=r"^optimizer ftrl: GPU kernels have sgd, adagrad, .* choose one of them$"):
        UpdateRule.of(hr.FTRL())
