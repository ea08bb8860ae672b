"""Every sparse optimizer computes what its float64 reference computes, with every option, at every dimension.

Where torch has it, fifty steps end where those of torch end; and a spec refuses what cannot be, in a sentence.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hotrow import FTRL, SGD, Adagrad, Adam, ConfigError, DecayedAdagrad, Normal, RowwiseAdagrad, Swap, Table, Uniform
from hotrow.store import RamTier
from oracles import optimizers
from oracles.optimizers import F64, Spec

F32 = NDArray[np.float32]
DIMS = (1, 3, 7, 16, 17, 64, 100)
KEYS = np.array([0, 1, 2**32, 2**63, 2**64 - 1], np.uint64)
UPDATES = 6

ROWS, DIM, STEPS, BATCH = 40, 17, 50, 30  # of the runs beside torch
MakeTorch = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

SPECS: dict[str, Spec] = {
    "sgd": SGD(lr=0.1),
    "sgd_l2": SGD(lr=0.1, l2=0.3),
    "sgd_decay": SGD(lr=0.1, decay=0.3),
    "sgd_clip": SGD(lr=0.1, clip=0.5),
    "sgd_everything": SGD(lr=0.1, l2=0.3, decay=0.2, clip=0.5),
    "adagrad": Adagrad(),
    "adagrad_eps": Adagrad(eps=0.1),
    "adagrad_eps_inside": Adagrad(eps=0.1, eps_inside=True),
    "adagrad_initial": Adagrad(initial=0.7),
    "adagrad_everything": Adagrad(l2=0.3, decay=0.2, clip=0.5, initial=0.1, eps=0.01),
    "rowwise": RowwiseAdagrad(),
    "rowwise_eps": RowwiseAdagrad(eps=0.1),
    "rowwise_eps_inside": RowwiseAdagrad(eps=0.1, eps_inside=True),
    "rowwise_initial": RowwiseAdagrad(initial=0.7),
    "rowwise_everything": RowwiseAdagrad(l2=0.3, decay=0.2, clip=0.5, initial=0.1, eps=0.01),
    "decayed": DecayedAdagrad(),
    "decayed_rate": DecayedAdagrad(rate=0.9, initial=0.2),
    "decayed_eps_inside": DecayedAdagrad(rate=0.9, eps=0.1, eps_inside=True),
    "decayed_everything": DecayedAdagrad(rate=0.9, l2=0.3, decay=0.2, clip=0.5, initial=0.1, eps=0.01),
    "adam_row": Adam(lr=0.05),
    "adam_global": Adam(lr=0.05, correction="global"),
    "adam_betas": Adam(lr=0.05, beta1=0.5, beta2=0.6, eps=0.1),
    "adam_no_mean": Adam(lr=0.05, beta1=0.0),
    "adam_everything": Adam(lr=0.05, l2=0.3, decay=0.2, clip=0.5, eps=0.01),
    "ftrl": FTRL(),
    "ftrl_beta": FTRL(lr=0.5, beta=0.2),
    "ftrl_l1": FTRL(lr=0.5, l1=0.8),
    "ftrl_l2": FTRL(lr=0.5, l2=3.0),
    "ftrl_decay": FTRL(lr=0.5, decay=0.2, l1=0.8),
    "ftrl_initial": FTRL(lr=0.5, initial=0.7),
    "ftrl_everything": FTRL(lr=0.5, l1=0.3, l2=2.0, clip=0.5, initial=0.1),
}


class Pair:
    """A native tier and float64 rows that get the same gradients."""

    def __init__(self, spec: Spec, dim: int, bound: float = 1.0) -> None:
        self.spec = spec
        self.tier = RamTier(Table(dim=dim, optimizer=spec, init=Uniform(bound=bound)), partitions=4)
        first = np.empty((len(KEYS), dim), np.float32)
        self.tier.find_or_init(KEYS, first)
        self.values: list[F64] = list(first.astype(np.float64))
        self.states = [optimizers.first_state(spec, value) for value in self.values]
        self.updates = 0

    def apply(self, gradients: F32, *, step: int, samples: int = 0) -> None:
        self.updates += 1
        t = step + 1 if isinstance(self.spec, Adam) and self.spec.correction == "global" else self.updates
        self.tier.apply(KEYS, gradients, step=step, samples=samples)
        for i, gradient in enumerate(gradients.astype(np.float64)):
            self.values[i], self.states[i] = optimizers.updated(
                self.spec, self.values[i], self.states[i], gradient, t=t
            )

    def check(self) -> None:
        values, state = rows_of(self.tier, KEYS)
        largest = max(1.0, float(np.abs(self.values).max()))  # a small value may be what is left of large steps
        np.testing.assert_allclose(values, np.array(self.values), rtol=1e-5, atol=1e-6 * largest)
        np.testing.assert_allclose(state, np.array(self.states), rtol=1e-5, atol=1e-6)


def rows_of(tier: RamTier, keys: NDArray[np.uint64]) -> tuple[F32, F32]:
    """Values and states of the keys, in their order."""
    chunks = list(tier.export())
    exported = np.concatenate([chunk.keys for chunk in chunks])
    place = {int(key): i for i, key in enumerate(exported)}
    order = [place[int(key)] for key in keys]
    return (
        np.concatenate([chunk.values for chunk in chunks])[order],
        np.concatenate([chunk.state for chunk in chunks])[order],
    )


def gradients_like(generator: np.random.Generator, dim: int) -> F32:
    return generator.standard_normal((len(KEYS), dim)).astype(np.float32)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", SPECS)
def test_optimizer_follows_its_float64_reference(name: str, dim: int) -> None:
    pair = Pair(SPECS[name], dim)
    generator = np.random.default_rng(dim)
    for update in range(UPDATES):
        pair.apply(gradients_like(generator, dim), step=2 * update)  # steps that are not the row's own count
        pair.check()


@pytest.mark.parametrize("name", SPECS)
def test_zero_gradients_are_updates_too(name: str) -> None:
    pair = Pair(SPECS[name], 5)
    pair.apply(np.ones((len(KEYS), 5), np.float32), step=0)
    pair.apply(np.zeros((len(KEYS), 5), np.float32), step=1)
    pair.check()
    assert pair.tier.versions(KEYS).tolist() == [3] * len(KEYS)


@pytest.mark.parametrize("name", SPECS)
def test_state_takes_the_floats_its_layout_says(name: str) -> None:
    spec = SPECS[name]
    for dim in DIMS:
        assert RamTier(Table(dim=dim, optimizer=spec)).state_dim == optimizers.state_dim(spec, dim)


@pytest.mark.parametrize("name", SPECS)
def test_fresh_rows_start_with_the_state_of_their_optimizer(name: str) -> None:
    Pair(SPECS[name], 7).check()


@pytest.mark.parametrize(("clip", "moved"), [(4.99, 4.99), (5.0, 5.0), (5.01, 5.0)])
def test_clip_shrinks_only_gradients_longer_than_it(clip: float, moved: float) -> None:
    tier = RamTier(Table(dim=2, optimizer=SGD(lr=1.0, clip=clip)))
    tier.put(KEYS[:1], np.zeros((1, 2), np.float32))
    tier.apply(KEYS[:1], np.array([[3, 4]], np.float32))
    out = np.empty((1, 2), np.float32)
    tier.find(KEYS[:1], out)
    np.testing.assert_allclose(out, [[-0.6 * moved, -0.8 * moved]], rtol=1e-6)


def test_clip_is_by_the_norm_of_the_whole_summed_row() -> None:
    tier = RamTier(Table(dim=100, optimizer=SGD(lr=1.0, clip=1.0)))
    tier.put(KEYS[:1], np.zeros((1, 100), np.float32))
    tier.apply(np.repeat(KEYS[:1], 4), np.full((4, 100), 0.25, np.float32))  # sums to ones, norm 10
    out = np.empty((1, 100), np.float32)
    tier.find(KEYS[:1], out)
    np.testing.assert_allclose(out, np.full((1, 100), -0.1), rtol=1e-6)


def test_l2_joins_the_gradient_after_the_clip() -> None:
    tier = RamTier(Table(dim=1, optimizer=SGD(lr=1.0, clip=1.0, l2=0.5)))
    tier.put(KEYS[:1], np.array([[8.0]], np.float32))
    tier.apply(KEYS[:1], np.array([[3.0]], np.float32))
    out = np.empty((1, 1), np.float32)
    tier.find(KEYS[:1], out)
    assert out.item() == 8.0 - (1.0 + 4.0)


def test_decay_shrinks_the_value_beside_the_update() -> None:
    tier = RamTier(Table(dim=1, optimizer=SGD(lr=0.5, decay=0.5)))
    tier.put(KEYS[:1], np.array([[8.0]], np.float32))
    tier.apply(KEYS[:1], np.array([[8.0]], np.float32))
    out = np.empty((1, 1), np.float32)
    tier.find(KEYS[:1], out)
    assert out.item() == 8.0 * 0.75 - 4.0


@pytest.mark.parametrize(("gradient", "zero"), [(0.99, True), (1.0, True), (1.01, False)])
def test_ftrl_keeps_a_weight_at_zero_up_to_l1(gradient: float, zero: bool) -> None:
    tier = RamTier(Table(dim=1, optimizer=FTRL(l1=1.0)))
    tier.put(KEYS[:1], np.zeros((1, 1), np.float32))
    tier.apply(KEYS[:1], np.array([[gradient]], np.float32))
    out = np.empty((1, 1), np.float32)
    tier.find(KEYS[:1], out)
    assert (out.item() == 0.0) is zero
    assert out.item() <= 0.0


def test_ftrl_starts_from_the_value_that_was_put() -> None:
    tier = RamTier(Table(dim=1, optimizer=FTRL(l1=0.5, l2=2.0), init=Uniform(bound=1.0)))
    tier.put(KEYS, np.full((len(KEYS), 1), 0.25, np.float32))
    tier.apply(KEYS, np.zeros((len(KEYS), 1), np.float32))
    np.testing.assert_allclose(rows_of(tier, KEYS)[0], 0.25, rtol=1e-6)


@pytest.mark.parametrize("spec", [Adagrad(eps=0), RowwiseAdagrad(eps=0), DecayedAdagrad(eps=0), Adam(eps=0)])
def test_without_eps_zero_gradients_move_nothing(spec: Spec) -> None:
    pair = Pair(spec, 3)
    before = rows_of(pair.tier, KEYS)[0]
    pair.apply(np.zeros((len(KEYS), 3), np.float32), step=0)
    np.testing.assert_array_equal(rows_of(pair.tier, KEYS)[0], before)


@pytest.mark.parametrize("decay", [0.25, 1.0])
@pytest.mark.parametrize("spec", [Adagrad(), RowwiseAdagrad(), Adam(lr=0.05)], ids=lambda spec: spec.name)
def test_rows_decay_by_the_periods_between_two_updates(spec: Adagrad | RowwiseAdagrad | Adam, decay: float) -> None:
    dim, generator = 5, np.random.default_rng(3)
    swapped = type(spec)(**spec.model_dump(exclude={"swap"}), swap=Swap(period=10, decay=decay))
    pair = Pair(swapped, dim)
    period = 0
    for step, samples in enumerate([9, 10, 19, 20, 55, 55]):  # last of a period, its first, and three periods at once
        now = samples // 10
        if step > 0:
            pair.states = [optimizers.decayed(swapped, state, dim, now - period) for state in pair.states]
        period = now
        pair.apply(gradients_like(generator, dim), step=step, samples=samples)
        pair.check()


@pytest.mark.parametrize(("made_at", "updated_at"), [(0, 0), (0, 9), (0, 10), (0, 39), (25, 29), (25, 30), (25, 45)])
def test_a_row_decays_from_the_period_of_its_making_on(made_at: int, updated_at: int) -> None:
    spec = Adagrad(initial=1.0, swap=Swap(period=10, decay=0.5))
    tier = RamTier(Table(dim=3, optimizer=spec))
    tier.find_or_init(KEYS, samples=made_at)
    tier.apply(KEYS, np.ones((len(KEYS), 3), np.float32), samples=updated_at)
    eager = optimizers.decayed(spec, np.ones(3), 3, updated_at // 10 - made_at // 10) + 1
    np.testing.assert_array_equal(rows_of(tier, KEYS)[1], np.tile(eager, (len(KEYS), 1)))


def test_a_row_is_made_in_the_period_that_an_update_has_reached() -> None:
    tier = RamTier(Table(dim=1, optimizer=Adagrad(initial=1.0, swap=Swap(period=10, decay=0.5))))
    zero = np.zeros((1, 1), np.float32)
    tier.apply(KEYS[:1], zero, samples=25)  # no such row: the period moves all the same
    tier.find_or_init(KEYS[:1])
    tier.apply(KEYS[:1], zero, samples=35)
    assert rows_of(tier, KEYS[:1])[1].item() == 0.5


def test_period_never_goes_back() -> None:
    pair = Pair(Adagrad(swap=Swap(period=1, decay=0.5)), 3)
    ones = np.ones((len(KEYS), 3), np.float32)
    for samples in (5, 3, 5):  # an aggregate that arrives late belongs to a period that the row has left behind
        pair.apply(ones, step=0, samples=samples)
        pair.check()


def test_an_update_that_comes_late_counts_in_the_period_of_the_table() -> None:
    tier = RamTier(Table(dim=1, optimizer=Adagrad(initial=8.0, swap=Swap(period=1, decay=0.5))))
    tier.find_or_init(KEYS[:1])
    tier.find_or_init(KEYS[1:2], samples=3)
    tier.apply(KEYS[:2], np.ones((2, 1), np.float32), samples=1)
    assert rows_of(tier, KEYS[:2])[1].ravel().tolist() == [2.0, 9.0]  # the first was made three periods ago


@pytest.mark.parametrize(
    ("before", "floor", "after"),
    [(16.0, 1.0, 2.0), (16.0, 2.0, 2.0), (16.0, 3.0, 3.0), (1.0, 3.0, 1.0), (3.0, 3.0, 3.0), (16.0, None, 2.0)],
)
def test_floor_stops_decay_and_never_raises(before: float, floor: float | None, after: float) -> None:
    tier = RamTier(Table(dim=1, optimizer=Adagrad(swap=Swap(period=10, decay=0.5, floor=floor))))
    key, zero = KEYS[:1], np.zeros((1, 1), np.float32)
    tier.put(key, zero, np.array([[before]], np.float32))
    tier.apply(key, zero, samples=0)
    tier.apply(key, zero, samples=30)
    assert rows_of(tier, key)[1].item() == after


def train_both(
    spec: SGD | Adagrad | Adam, make: MakeTorch, *, sparse: bool
) -> tuple[NDArray[np.float32], torch.Tensor]:
    """The rows after STEPS batches with duplicate ids, from one start: ours, torch's."""
    generator = torch.Generator().manual_seed(1)
    embedding = torch.nn.Embedding(ROWS, DIM, sparse=sparse)
    keys = np.arange(ROWS, dtype=np.uint64)
    tier = RamTier(Table(dim=DIM, optimizer=spec))
    tier.put(keys, embedding.weight.detach().numpy())
    optimizer = make(list(embedding.parameters()))
    for step in range(STEPS):
        ids = torch.randint(0, ROWS, (BATCH,), generator=generator)
        if not sparse:  # a dense optimizer moves every row at every step: show them all
            ids = torch.cat([ids, torch.arange(ROWS)])
        gradients = torch.randn((len(ids), DIM), generator=generator)
        optimizer.zero_grad()
        (embedding(ids) * gradients).sum().backward()
        optimizer.step()
        tier.apply(ids, gradients, step=step)
    out = np.empty((ROWS, DIM), np.float32)
    tier.find(keys, out)
    return out, embedding.weight.detach()


TORCH: dict[str, tuple[SGD | Adagrad | Adam, MakeTorch, bool]] = {
    "sgd": (SGD(lr=0.05), lambda p: torch.optim.SGD(p, lr=0.05), True),
    "sgd_l2": (SGD(lr=0.05, l2=0.1), lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1), False),
    "adagrad_sparse": (Adagrad(lr=0.05), lambda p: torch.optim.Adagrad(p, lr=0.05), True),
    "adagrad_dense": (Adagrad(lr=0.05), lambda p: torch.optim.Adagrad(p, lr=0.05), False),
    "adagrad_initial": (
        Adagrad(lr=0.05, initial=0.3, eps=0.01),
        lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.3, eps=0.01),
        True,
    ),
    "adagrad_l2": (Adagrad(lr=0.05, l2=0.1), lambda p: torch.optim.Adagrad(p, lr=0.05, weight_decay=0.1), False),
    "adam_global": (Adam(lr=0.01, correction="global"), lambda p: torch.optim.SparseAdam(p, lr=0.01), True),
    "adamw": (  # dense Adam corrects v before it adds eps: the same only while eps is as good as none
        Adam(lr=0.01, decay=0.5, eps=1e-12),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5, eps=1e-12),
        False,
    ),
    "adam_global_eps": (
        Adam(lr=0.01, correction="global", beta1=0.8, beta2=0.9, eps=0.1),
        lambda p: torch.optim.SparseAdam(p, lr=0.01, betas=(0.8, 0.9), eps=0.1),
        True,
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_fifty_steps_end_where_those_of_torch_end(name: str) -> None:
    spec, make, sparse = TORCH[name]
    ours, theirs = train_both(spec, make, sparse=sparse)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=2e-5, atol=5e-6)


def test_row_and_global_correction_agree_on_rows_in_every_step() -> None:
    adam = Adam(lr=0.01, correction="row")
    ours, theirs = train_both(adam, lambda p: torch.optim.SparseAdam(p, lr=0.01), sparse=True)
    assert np.abs(ours - theirs.numpy()).max() > 1e-3  # rows missing from some steps: the two corrections differ
    tiers = [RamTier(Table(dim=DIM, optimizer=Adam(correction=c))) for c in ("row", "global")]
    keys = np.arange(ROWS, dtype=np.uint64)
    outs = [np.empty((ROWS, DIM), np.float32) for _ in tiers]
    for tier, out in zip(tiers, outs, strict=True):
        tier.find_or_init(keys)
        for step in range(STEPS):
            tier.apply(keys, np.full((ROWS, DIM), 0.1 * (step % 3), np.float32), step=step)
        tier.find(keys, out)
    np.testing.assert_array_equal(outs[0], outs[1])


ALL = (SGD, Adagrad, RowwiseAdagrad, DecayedAdagrad, Adam, FTRL)
REFUSED: list[tuple[Callable[..., object], str, Any]] = [
    *[(spec, "lr", -1) for spec in ALL],
    *[(spec, "lr", 0) for spec in ALL],
    *[(spec, "lr", float("nan")) for spec in ALL],
    *[(spec, "lr", float("inf")) for spec in ALL],
    *[(spec, "l2", -0.5) for spec in ALL],
    *[(spec, "decay", -0.5) for spec in ALL],
    *[(spec, "clip", -2.0) for spec in ALL],
    *[(spec, "clip", 0) for spec in ALL],
    *[(spec, "eps", -1e-8) for spec in (Adagrad, RowwiseAdagrad, DecayedAdagrad, Adam)],
    *[(spec, "initial", -3.0) for spec in (Adagrad, RowwiseAdagrad, DecayedAdagrad, FTRL)],
    (DecayedAdagrad, "rate", 0),
    (DecayedAdagrad, "rate", 1),
    (Adam, "beta1", 1),
    (Adam, "beta1", -0.1),
    (Adam, "beta2", 1),
    (Adam, "correction", "rows"),
    (FTRL, "beta", -1),
    (FTRL, "l1", -1),
    (SGD, "momentum", 0.9),
    (SGD, "swap", None),
    (DecayedAdagrad, "swap", None),
    (Uniform, "bound", -1),
    (Normal, "std", -1),
]


@pytest.mark.parametrize(("spec", "field", "value"), REFUSED)
def test_bad_value_is_refused_with_field_and_value(spec: Callable[..., object], field: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        spec(**{field: value})
    assert field in str(refused.value)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"), [("period", 0), ("period", -5), ("decay", 0), ("decay", 1.01), ("decay", -1), ("floor", -1)]
)
def test_swap_refuses_what_would_not_decay(field: str, value: float) -> None:
    good = {"period": 10, "decay": 0.5}
    with pytest.raises(ConfigError, match=field) as refused:
        Swap(**{**good, field: value})
    assert repr(value) in str(refused.value)


def test_swap_allows_both_ends_of_its_ranges() -> None:
    assert Swap(period=1, decay=1.0, floor=0.0).decay == 1.0


@pytest.mark.parametrize("dim", [0, -1, 65_537])
def test_table_refuses_a_dim_it_cannot_hold(dim: int) -> None:
    with pytest.raises(ConfigError, match=rf"dim={dim}"):
        Table(dim=dim)


def test_unknown_optimizer_is_refused_by_name_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="momentum") as refused:
        Table(dim=4, optimizer={"name": "momentum"})
    assert all(name in str(refused.value) for name in ("sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"))


def test_optimizer_may_be_written_as_in_a_config_file() -> None:
    table = Table(dim=4, optimizer={"name": "adagrad", "lr": 0.1})
    assert table.optimizer == Adagrad(lr=0.1)


def test_fault_inside_a_nested_spec_names_its_field() -> None:
    with pytest.raises(ConfigError, match=r"lr.*-1"):
        Table(dim=4, optimizer={"name": "adagrad", "lr": -1})


def test_specs_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        Adagrad().lr = 0.2  # type: ignore[misc]


@pytest.mark.parametrize("spec", ALL)
def test_spec_survives_a_round_trip_through_plain_values(spec: type[SGD]) -> None:
    made = spec(lr=0.125, clip=3.0)
    assert Table(dim=4, optimizer=made.model_dump()).optimizer == made
