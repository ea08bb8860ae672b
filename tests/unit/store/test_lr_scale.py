"""A schedule's factor on one update is the same as a table with that learning rate."""

from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.store import RamTier

OPTIMIZERS = {
    "sgd": (hr.SGD, {"lr": 0.1, "decay": 0.02}),
    "adagrad": (hr.Adagrad, {"lr": 0.1, "l2": 0.01}),
    "adagrad with decay": (hr.Adagrad, {"lr": 0.1, "decay": 0.3}),
    "rowwise": (hr.RowwiseAdagrad, {"lr": 0.1}),
    "decayed": (hr.DecayedAdagrad, {"lr": 0.1}),
    "adam by row": (hr.Adam, {"lr": 0.1}),
    "adam by step": (hr.Adam, {"lr": 0.1, "correction": "global"}),
}


def trained(optimizer: Any, scales: list[float]) -> np.ndarray:
    tier = RamTier(hr.Table(dim=5, optimizer=optimizer))
    rng = np.random.default_rng(0)
    keys = np.arange(7, dtype=np.uint64)
    tier.find_or_init(keys)
    for step, scale in enumerate(scales):
        tier.apply(keys, rng.normal(size=(7, 5)).astype(np.float32), step=step, lr_scale=scale)
    out = np.empty((7, 5), np.float32)
    tier.find(keys, out)
    return out


@pytest.mark.parametrize(("make", "settings"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_scaled_rate_is_the_rate_times_the_scale(make: Any, settings: dict[str, float]) -> None:
    scaled = trained(make(**settings), [0.5, 0.5, 0.5])
    smaller = trained(make(**{**settings, "lr": settings["lr"] / 2}), [1, 1, 1])
    assert np.abs(scaled - trained(make(**settings), [1, 1, 1])).max() > 1e-3
    np.testing.assert_allclose(scaled, smaller, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(("make", "settings"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_scale_holds_for_its_own_update_only(make: Any, settings: dict[str, float]) -> None:
    frozen_first = trained(make(**settings), [0.0, 1.0])
    assert np.abs(frozen_first - trained(make(**settings), [0.0])).max() > 1e-3


def test_scale_one_changes_no_bit() -> None:
    assert (trained(hr.Adam(lr=0.1), [1.0, 1.0]) == trained(hr.Adam(lr=0.1), [1, 1])).all()


@pytest.mark.parametrize("scale", [-0.1, float("nan"), float("inf")])
def test_a_scale_that_cannot_be_is_refused(scale: float) -> None:
    with pytest.raises(hr.InputError, match=r"lr_scale=.*: must be from 0"):
        trained(hr.SGD(lr=0.1), [scale])


def test_ftrl_keeps_its_rate() -> None:
    trained(hr.FTRL(lr=0.1), [1.0])
    with pytest.raises(hr.InputError, match="FTRL's state holds for one learning rate"):
        trained(hr.FTRL(lr=0.1), [0.5])
