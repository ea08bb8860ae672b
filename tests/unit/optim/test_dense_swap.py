"""SWAP around torch's optimizers decays v alone, at the borders of its periods, and agrees with the lazy rows."""

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn, optim

from hotrow import Adagrad, Adam, ConfigError, InputError, Swap, Table, checkpoint
from hotrow.optim import KStepAdam, SwapOptimizer
from hotrow.store import RamTier
from oracles import optimizers
from profiles import examples

DIM = 4
SWAP = Swap(period=100, decay=0.5)
Make = Callable[[Iterable[Tensor]], optim.Optimizer]

ACCUMULATORS: dict[str, tuple[Make, str]] = {
    "adagrad": (lambda p: optim.Adagrad(p, lr=0.1), "sum"),
    "adagrad_fused": (lambda p: optim.Adagrad(p, lr=0.1, fused=True), "sum"),
    "adam": (lambda p: optim.Adam(p, lr=0.1), "exp_avg_sq"),
    "adam_foreach": (lambda p: optim.Adam(p, lr=0.1, foreach=True), "exp_avg_sq"),
    "adam_fused": (lambda p: optim.Adam(p, lr=0.1, fused=True), "exp_avg_sq"),
    "adamw": (lambda p: optim.AdamW(p, lr=0.1), "exp_avg_sq"),
    "nadam": (lambda p: optim.NAdam(p, lr=0.1), "exp_avg_sq"),
    "radam": (lambda p: optim.RAdam(p, lr=0.1), "exp_avg_sq"),
    "rmsprop": (lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5), "square_avg"),
}


def weight(of: float = 0.0) -> nn.Parameter:
    return nn.Parameter(torch.full((DIM,), of, dtype=torch.float64))


def adagrad(parameter: Tensor, swap: Swap = SWAP) -> SwapOptimizer:
    return SwapOptimizer(optim.Adagrad([parameter], lr=0.1), swap)


def update(optimizer: optim.Optimizer, parameter: Tensor, gradient: float | Tensor, samples: int) -> None:
    parameter.grad = torch.zeros_like(parameter) + gradient
    if isinstance(optimizer, SwapOptimizer):
        optimizer.set_samples(samples)
    optimizer.step()


def moment(optimizer: optim.Optimizer, parameter: Tensor, name: str = "sum") -> list[float]:
    found: list[float] = optimizer.state[parameter][name].tolist()
    return found


@pytest.mark.parametrize(
    ("samples", "expected"),
    [(99, 5.0), (100, 3.0), (199, 3.0), (200, 2.0), (1000, 1 + 4 * 0.5**10)],
)
def test_v_decays_before_the_update_that_reaches_a_border(samples: int, expected: float) -> None:
    parameter = weight()
    optimizer = adagrad(parameter)
    update(optimizer, parameter, 2.0, 50)
    update(optimizer, parameter, 1.0, samples)
    assert moment(optimizer, parameter) == [expected] * DIM


def test_one_period_decays_once() -> None:
    parameter = weight()
    optimizer = adagrad(parameter)
    update(optimizer, parameter, 2.0, 99)
    for samples in (100, 150, 199):
        update(optimizer, parameter, 0.0, samples)
    assert moment(optimizer, parameter) == [2.0] * DIM


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_only_the_second_moment_decays(name: str) -> None:
    make, accumulator = ACCUMULATORS[name]
    ours, theirs = weight(1.0), weight(1.0)
    swapped, plain = SwapOptimizer(make([ours]), SWAP), make([theirs])
    for i, samples in enumerate((60, 120, 180, 420)):  # periods 0, 1, 1, 4
        if i in (1, 3):
            plain.state[theirs][accumulator] *= 0.5 if i == 1 else 0.5**3
        gradient = torch.linspace(-1, 1, DIM, dtype=torch.float64) + i
        update(swapped, ours, gradient, samples)
        update(plain, theirs, gradient, samples)
    assert torch.equal(ours, theirs)
    for entry, value in plain.state[theirs].items():
        assert torch.equal(torch.as_tensor(swapped.state[ours][entry]), torch.as_tensor(value)), entry


@pytest.mark.parametrize(("squared", "expected"), [(16.0, 4.0), (2.0, 1.5), (1.5, 1.5), (1.0, 1.0)])
def test_a_floor_stops_the_decay_and_raises_nothing(squared: float, expected: float) -> None:
    parameter = weight()
    optimizer = adagrad(parameter, Swap(period=100, decay=0.5, floor=1.5))
    update(optimizer, parameter, squared**0.5, 10)
    update(optimizer, parameter, 0.0, 210)
    np.testing.assert_allclose(moment(optimizer, parameter), expected, rtol=1e-15)


def test_a_parameter_that_was_never_updated_starts_undecayed() -> None:
    early, late = weight(), weight()
    optimizer = SwapOptimizer(optim.Adagrad([early, late], lr=0.1, initial_accumulator_value=8.0), SWAP)
    update(optimizer, early, 0.0, 10)
    late.grad = torch.zeros_like(late)
    update(optimizer, early, 0.0, 350)
    assert moment(optimizer, early) == [1.0] * DIM
    assert moment(optimizer, late) == [8.0] * DIM
    update(optimizer, early, 0.0, 400)
    assert moment(optimizer, late) == [4.0] * DIM


def test_samples_that_go_back_raise_nothing_and_decay_nothing_twice() -> None:
    parameter = weight()
    optimizer = adagrad(parameter)
    update(optimizer, parameter, 2.0, 250)
    update(optimizer, parameter, 0.0, 50)
    update(optimizer, parameter, 0.0, 260)
    assert moment(optimizer, parameter) == [4.0] * DIM


@settings(max_examples=examples(40))
@given(
    steps=st.lists(st.tuples(st.integers(0, 260), st.booleans(), st.floats(-2, 2)), min_size=1, max_size=12),
    decay=st.sampled_from([0.3, 0.9, 1.0]),
    floor=st.sampled_from([None, 0.0, 0.5]),
)
def test_eager_follows_the_float64_reference(
    steps: list[tuple[int, bool, float]], decay: float, floor: float | None
) -> None:
    """Whatever the gaps, and also after steps without a gradient: catching up at once is as going period by period."""
    swap = Swap(period=100, decay=decay, floor=floor)
    spec = Adagrad(lr=0.1, swap=swap)
    parameter = weight(1.0)
    optimizer = adagrad(parameter, swap)
    value, state, stands_at, samples = np.ones(DIM), np.zeros(DIM), None, 0
    for gap, there, gradient in steps:
        samples += gap
        if not there:
            parameter.grad = None
            optimizer.set_samples(samples)
            optimizer.step()
            continue
        update(optimizer, parameter, gradient, samples)
        behind = 0 if stands_at is None else samples // 100 - stands_at
        state = optimizers.decayed(spec, state, DIM, behind)
        value, state = optimizers.updated(spec, value, state, np.full(DIM, gradient), t=1)
        stands_at = samples // 100
        np.testing.assert_allclose(moment(optimizer, parameter), state, rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-10)


LAZY: dict[str, tuple[Adagrad | Adam, Make]] = {
    "adagrad": (Adagrad(lr=0.1, swap=SWAP), lambda p: optim.Adagrad(p, lr=0.1)),
    "adagrad_floor": (
        Adagrad(lr=0.1, initial=0.3, swap=Swap(period=100, decay=0.3, floor=0.4)),
        lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.3),
    ),
    "adam": (  # dense Adam corrects v before it adds eps: the same only while eps is as good as none
        Adam(lr=0.1, eps=1e-12, swap=SWAP),
        lambda p: optim.Adam(p, lr=0.1, eps=1e-12),
    ),
}


@pytest.mark.parametrize("name", LAZY)
def test_eager_parameters_and_lazy_rows_agree(name: str) -> None:
    """Each row of a table beside a parameter of its own, on the same gradients; rows miss some steps."""
    spec, make = LAZY[name]
    assert spec.swap is not None
    keys = np.arange(6, dtype=np.uint64)
    tier = RamTier(Table(dim=DIM, optimizer=spec))
    first = np.empty((len(keys), DIM), np.float32)
    tier.find_or_init(keys, first)
    parameters = [nn.Parameter(torch.from_numpy(row.copy())) for row in first]
    optimizer = SwapOptimizer(make(parameters), spec.swap)
    generator = np.random.default_rng(0)
    for step in range(40):
        samples = (step + 1) * 37
        present = keys[generator.random(len(keys)) < 0.3]
        gradients = generator.standard_normal((len(present), DIM)).astype(np.float32)
        tier.apply(present, gradients, step=step, samples=samples)
        optimizer.zero_grad()
        for key, gradient in zip(present, gradients, strict=True):
            parameters[int(key)].grad = torch.from_numpy(gradient.copy())
        optimizer.set_samples(samples)
        optimizer.step()
    out = np.empty_like(first)
    tier.find(keys, out)
    np.testing.assert_allclose(out, torch.stack(list(parameters)).detach().numpy(), rtol=2e-5, atol=2e-6)


def test_state_survives_a_checkpoint_with_its_period(tmp_path: Path) -> None:
    models = [nn.Linear(DIM, 1, bias=False) for _ in range(2)]
    made = [SwapOptimizer(optim.Adam(model.parameters(), lr=0.1), SWAP) for model in models]
    update(made[0], models[0].weight, 2.0, 250)
    checkpoint.save(tmp_path, models[0], made[0], {}, checkpoint.Saved({}, None, {}))
    checkpoint.load(tmp_path, models[1], made[1], {})
    for model, optimizer in zip(models, made, strict=True):
        for samples in (299, 300, 620):
            update(optimizer, model.weight, 1.0, samples)
    assert torch.equal(models[0].weight, models[1].weight)
    assert made[0].state_dict()["state"][0]["swap_period"] == 6


def test_state_of_a_plain_optimizer_goes_on_undecayed() -> None:
    parameter, other = weight(), weight()
    plain, swapped = optim.Adagrad([parameter], lr=0.1), adagrad(other)
    update(plain, parameter, 2.0, 0)
    swapped.load_state_dict(plain.state_dict())
    update(swapped, other, 0.0, 910)
    assert moment(swapped, other) == [4.0] * DIM
    update(swapped, other, 0.0, 1000)
    assert moment(swapped, other) == [2.0] * DIM
    plain.load_state_dict(swapped.state_dict())  # and back
    update(plain, parameter, 1.0, 0)
    assert moment(plain, parameter) == [3.0] * DIM


def test_state_of_another_optimizer_is_refused() -> None:
    parameter = weight()
    adam = SwapOptimizer(optim.Adam([parameter]), SWAP)
    update(adam, parameter, 1.0, 10)
    with pytest.raises(InputError, match=r"'sum'.*Adagrad"):
        adagrad(weight()).load_state_dict(adam.state_dict())


def test_it_stands_wherever_an_optimizer_stands() -> None:
    parameter = weight()
    optimizer = adagrad(parameter)
    inside = optimizer.optimizer
    assert isinstance(optimizer, optim.Optimizer)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    update(optimizer, parameter, 1.0, 10)
    scheduler.step()
    assert inside.param_groups[0]["lr"] == 0.05
    optimizer.zero_grad()
    assert parameter.grad is None
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.param_groups[0]["lr"] = 0.0  # still those of the one inside
    before = parameter.detach().clone()
    update(optimizer, parameter, 1.0, 20)
    assert torch.equal(parameter, before)
    assert optimizer.state is inside.state


def test_a_copy_goes_its_own_way() -> None:
    parameter = weight()
    optimizer = adagrad(parameter)
    update(optimizer, parameter, 2.0, 10)
    copied = copy.deepcopy(optimizer)
    (other,) = copied.param_groups[0]["params"]
    update(copied, other, 1.0, 110)
    assert moment(copied, other) == [3.0] * DIM
    assert moment(optimizer, parameter) == [4.0] * DIM


def test_a_closure_is_called_once_before_the_decay() -> None:
    parameter = weight(1.0)
    optimizer = adagrad(parameter)
    calls = []

    def closure() -> float:
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        calls.append(loss.item())
        return calls[-1]

    optimizer.set_samples(50)
    assert optimizer.step(closure) == DIM
    optimizer.set_samples(100)
    optimizer.step(closure)
    assert len(calls) == 2
    np.testing.assert_allclose(moment(optimizer, parameter), 2 + 1.8**2, rtol=1e-9)


REFUSED: list[tuple[Make, str]] = [
    (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), "optimizer=SGD: it has no second moment.*Adagrad, Adam, AdamW"),
    (lambda p: optim.Adamax(p), "optimizer=Adamax"),
    (lambda p: KStepAdam(p), "optimizer=KStepAdam"),
    (lambda p: optim.Adam(p, amsgrad=True), "Adam.amsgrad=True.*largest v.*leave it False"),
    (lambda p: optim.RMSprop(p, centered=True), "RMSprop.centered=True.*leave it False"),
]


@pytest.mark.parametrize(("make", "told"), REFUSED)
def test_what_has_nothing_to_decay_is_refused(make: Make, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SwapOptimizer(make([weight()]), SWAP)


def test_a_step_without_a_count_of_samples_is_refused() -> None:
    parameter = weight()
    optimizer = adagrad(parameter)
    parameter.grad = torch.ones_like(parameter)
    with pytest.raises(InputError, match="set_samples"):
        optimizer.step()


@pytest.mark.parametrize("samples", [-1, 1.5, True, "10", 2**62 + 1])
def test_a_count_that_is_none_is_refused(samples: Any) -> None:
    with pytest.raises(InputError, match="samples="):
        adagrad(weight()).set_samples(samples)
