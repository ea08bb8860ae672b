"""k-step Adam on torch parameters goes where its float64 reference goes, however its merges are made."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hotrow import checkpoint
from hotrow.errors import ConfigError, InputError
from hotrow.optim import KStepAdam, adam_second_moments, merge
from oracles import modes
from oracles.modes import F64
from profiles import examples

DIM = 5


class Worker:
    """A replica of two parameters and its optimizer."""

    def __init__(self, start: F64, **chosen: Any) -> None:
        self.parameters = [nn.Parameter(torch.from_numpy(part.copy())) for part in (start[:2], start[2:].reshape(1, 3))]
        self.optimizer = KStepAdam(self.parameters, **chosen)

    @property
    def x(self) -> F64:
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in self.parameters])

    def backward(self, gradient: F64) -> None:
        given = torch.from_numpy(gradient.copy())
        for parameter, part in zip(self.parameters, (given[:2], given[2:].reshape(1, 3)), strict=True):
            parameter.grad = part

    def state(self, name: str) -> F64:
        return np.concatenate([self.optimizer.state[parameter][name].numpy().ravel() for parameter in self.parameters])


def workers(count: int, **chosen: Any) -> list[Worker]:
    return [Worker(np.arange(1.0, DIM + 1), **chosen) for _ in range(count)]


def merge_by_pieces(optimizers: Sequence[KStepAdam]) -> None:
    """As a cluster does it: two means over the workers."""

    def means(each: Callable[[KStepAdam], list[Tensor]]) -> list[Tensor]:
        return [torch.stack(same).mean(0) for same in zip(*map(each, optimizers), strict=True)]

    moments = means(KStepAdam.second_moments)
    for optimizer in optimizers:
        optimizer.load_second_moments(moments)
    parameters = means(KStepAdam.propose)
    for optimizer in optimizers:
        optimizer.load_parameters(parameters)


def train(team: list[Worker], gradients: F64, merges: Callable[[int], bool], how: Callable[..., None] = merge) -> None:
    """gradients [steps, workers, DIM] pull x towards 0 a little, so that they depend on where a worker stands."""
    for t, of_step in enumerate(gradients, start=1):
        for worker, gradient in zip(team, of_step, strict=True):
            worker.backward(gradient + 0.1 * worker.x)
            if merges(t):
                worker.optimizer.accumulate()
            else:
                worker.optimizer.step(local=True)
        if merges(t):
            how([worker.optimizer for worker in team])


def reference(gradients: F64, merges: Callable[[int], bool], **chosen: Any) -> modes.KStepAdam:
    twin = modes.KStepAdam(np.arange(1.0, DIM + 1), gradients.shape[1], **chosen)
    for t, of_step in enumerate(gradients, start=1):
        twin.step(lambda i, x, of_step=of_step: of_step[i] + 0.1 * x, merge=merges(t))  # type: ignore[misc]
    return twin


def check(team: list[Worker], twin: modes.KStepAdam) -> None:
    for i, worker in enumerate(team):
        np.testing.assert_allclose(worker.x, twin.x[i], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(worker.state("mean"), twin.mean[i], rtol=1e-11)
        np.testing.assert_allclose(worker.state("square"), twin.square[i], rtol=1e-11)
        if twin.merged is not None:
            np.testing.assert_allclose(worker.state("merged"), twin.merged, rtol=1e-11)


@settings(max_examples=examples(60))
@given(
    count=st.integers(1, 4),
    k=st.integers(1, 5),
    warmup=st.integers(0, 4),
    beta1=st.sampled_from([0.0, 0.5, 0.9]),
    beta2=st.sampled_from([0.0, 0.9, 0.999]),
    eps=st.sampled_from([1e-8, 1e-2]),
    literal=st.booleans(),
    seed=st.integers(0, 100),
)
@pytest.mark.parametrize("how", [merge, merge_by_pieces])
def test_workers_go_where_the_reference_goes(
    how: Callable[..., None],
    count: int,
    k: int,
    warmup: int,
    beta1: float,
    beta2: float,
    eps: float,
    literal: bool,
    seed: int,
) -> None:
    gradients = np.random.default_rng(seed).standard_normal((11, count, DIM))
    chosen = {"lr": 0.01, "beta1": beta1, "beta2": beta2, "eps": eps, "literal": literal}

    def merges(t: int) -> bool:
        return t % k == 0 or (t <= warmup and not literal)  # the paper has no warm-up

    team = workers(count, **chosen)
    train(team, gradients, merges, how)
    check(team, reference(gradients, merges, **chosen))


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_workers_that_start_from_a_second_moment_go_where_the_reference_goes(k: int, literal: bool) -> None:
    gradients = np.random.default_rng(7).standard_normal((8, 2, DIM))
    start = np.array([0.5, 2.0, 0.1, 1.0, 3.0])
    chosen: dict[str, Any] = {"lr": 0.01, "beta2": 0.9, "literal": literal}
    given = [torch.from_numpy(start[:2].copy()), torch.from_numpy(start[2:].reshape(1, 3).copy())]
    team = workers(2, **chosen, second_moment=given)
    train(team, gradients, lambda t: t % k == 0)
    check(team, reference(gradients, lambda t: t % k == 0, **chosen, second_moment=start))


def test_the_second_moment_of_a_torch_adam_is_one_to_start_from(tmp_path: Path) -> None:
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    adam = torch.optim.Adam(theirs.parameters(), lr=0.1, betas=(0.0, 0.9))
    for scale in (1.0, 2.0, 3.0):
        adam.zero_grad()
        (theirs(torch.ones(1, 3)) * scale).sum().backward()
        adam.step()
    moments = adam_second_moments(adam)
    squares = sum(0.1 * 0.9 ** (3 - t) * t**2 for t in (1, 2, 3)) / (1 - 0.9**3)
    torch.testing.assert_close(moments, [torch.full((2, 3), squares), torch.full((2,), squares)])
    hot = KStepAdam(ours.parameters(), lr=0.1, beta2=0.9, second_moment=moments)
    before = ours.bias.detach().clone()
    ours(torch.ones(1, 3)).sum().backward()
    hot.step(local=True)
    torch.testing.assert_close(before - ours.bias, torch.full((2,), 0.1 / squares**0.5))
    checkpoint.save(tmp_path, ours, hot, {}, checkpoint.Saved({}, None, {}))
    again = KStepAdam(ours.parameters(), lr=0.1, beta2=0.9)
    checkpoint.load(tmp_path, ours, again, {})
    torch.testing.assert_close(again.second_moments(), hot.second_moments())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([torch.ones(2)], "second_moment: shapes"),
        ([torch.ones(2), -torch.ones(1, 3)], "second_moment holds negative"),
        ([torch.ones(2), torch.full((1, 3), np.nan)], "second_moment holds negative or non-finite"),
    ],
)
def test_what_cannot_be_a_second_moment_is_refused(given: list[Tensor], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Worker(np.ones(DIM), second_moment=given)


def test_an_optimizer_without_second_moments_to_start_from_is_refused() -> None:
    layer = nn.Linear(2, 1)
    with pytest.raises(InputError, match="optimizer=SGD: take v from"):
        adam_second_moments(torch.optim.SGD(layer.parameters(), lr=0.1))
    with pytest.raises(InputError, match="parameter 0 of the Adam was never updated"):
        adam_second_moments(torch.optim.Adam(layer.parameters()))


def test_defaults_are_those_of_the_design() -> None:
    (worker,) = workers(1)
    group = worker.optimizer.param_groups[0]
    assert (group["beta1"], group["beta2"], group["literal"]) == (0.0, 0.999, False)


def test_between_merges_the_merged_moment_is_frozen_and_each_worker_keeps_its_own() -> None:
    team = workers(2)
    gradients = np.random.default_rng(1).standard_normal((4, 2, DIM))
    train(team, gradients[:1], lambda t: True)
    merged, square = team[0].state("merged"), team[0].state("square")
    train(team, gradients[1:], lambda t: False)
    np.testing.assert_array_equal(team[0].state("merged"), merged)
    assert (team[0].state("square") != square).all()
    assert (team[0].x != team[1].x).all()
    merge([worker.optimizer for worker in team])
    np.testing.assert_array_equal(team[0].x, team[1].x)
    np.testing.assert_array_equal(team[0].state("merged"), team[1].state("merged"))
    assert (team[0].state("square") != team[1].state("square")).all()


def test_first_merge_of_a_cold_start_moves_by_the_mean_of_g_over_the_root_of_the_mean_of_its_square() -> None:
    team = workers(2, lr=0.5)
    gradients = np.array([[[3.0] * DIM, [4.0] * DIM]])
    for worker, gradient in zip(team, gradients[0], strict=True):
        worker.backward(gradient)
        worker.optimizer.accumulate()
    before = team[0].x
    merge([worker.optimizer for worker in team])
    np.testing.assert_allclose(team[0].x, before - 0.5 * 3.5 / np.sqrt((9 + 16) / 2), rtol=1e-7)


def test_first_steps_of_the_paper_divide_by_the_root_of_eps() -> None:
    (worker,) = workers(1, lr=0.5, eps=1e-4, literal=True)
    before = worker.x
    worker.backward(np.full(DIM, 2.0))
    worker.optimizer.step(local=True)
    np.testing.assert_allclose(worker.x, before - 0.5 * 2.0 / 1e-2, rtol=1e-12)


def test_an_element_without_gradients_stays_where_it_is_when_the_paper_s_v_has_faded() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = KStepAdam([weight], literal=True)
    weight.grad = torch.tensor([0.0, 1.0])
    optimizer.load_second_moments([torch.tensor([0.0, 1.0])])
    optimizer.step(local=True)
    np.testing.assert_allclose(weight.detach().numpy(), [1.0, 0.999])


def test_one_alone_is_the_adam_of_torch() -> None:
    (ours,), theirs = workers(1, lr=0.01, beta2=0.99), workers(1)[0]
    adam = torch.optim.Adam(theirs.parameters, lr=0.01, betas=(0.0, 0.99))
    for gradient in np.random.default_rng(2).standard_normal((30, DIM)):
        for worker, optimizer in ((ours, ours.optimizer), (theirs, adam)):
            worker.backward(gradient)
            optimizer.step()
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-10)


def test_one_alone_is_a_team_of_one_that_merges_every_step() -> None:
    (alone,), team = workers(1, beta1=0.9), workers(1, beta1=0.9)
    gradients = np.random.default_rng(3).standard_normal((6, 1, DIM))
    train(team, gradients, lambda t: True)
    for gradient in gradients[:, 0]:
        alone.backward(gradient + 0.1 * alone.x)
        alone.optimizer.step()
    np.testing.assert_array_equal(alone.x, team[0].x)


def test_state_of_one_alone_goes_on_under_k_steps() -> None:
    (alone,) = workers(1)
    for gradient in np.random.default_rng(4).standard_normal((3, DIM)):
        alone.backward(gradient)
        alone.optimizer.step()
    (replica,) = workers(1)
    replica.optimizer.load_state_dict(alone.optimizer.state_dict())
    replica.backward(np.ones(DIM))
    before = replica.x
    replica.optimizer.step(local=True)  # the moment that alone merged with itself last divides
    np.testing.assert_allclose(replica.x, before - 1e-3 / (np.sqrt(alone.state("merged")) + 1e-8), rtol=1e-12)


def test_workers_that_moved_already_are_merged_as_they_stand() -> None:
    team = workers(3)
    train(team, np.random.default_rng(5).standard_normal((3, 3, DIM)), lambda t: t == 1)
    mean = np.mean([worker.x for worker in team], axis=0)
    merge([worker.optimizer for worker in team])
    for worker in team:
        np.testing.assert_allclose(worker.x, mean, rtol=1e-14)


def test_only_who_owes_a_move_makes_it_at_a_merge() -> None:
    team = workers(2)
    train(team, np.random.default_rng(6).standard_normal((2, 2, DIM)), lambda t: t == 1)
    team[0].backward(np.ones(DIM))
    team[0].optimizer.accumulate()
    corrected = [
        worker.state("square") / (1 - 0.999**steps) for worker, steps in zip(team, (3, 2), strict=True)
    ]  # each by its own steps, so that both divide by the same
    divisor = np.sqrt(np.mean(corrected, axis=0)) + 1e-8
    expected = (team[0].x - 1e-3 / divisor + team[1].x) / 2
    merge([worker.optimizer for worker in team])
    for worker in team:
        np.testing.assert_allclose(worker.x, expected, rtol=1e-12)
        np.testing.assert_allclose(worker.state("merged"), np.mean(corrected, axis=0), rtol=1e-12)


def test_a_gradient_moves_parameters_once() -> None:
    team = workers(2)
    train(team, np.ones((1, 2, DIM)), lambda t: True)
    after = team[0].x
    merge([worker.optimizer for worker in team])
    np.testing.assert_array_equal(team[0].x, after)


def test_a_gradient_that_moved_nothing_is_not_lost_in_silence() -> None:
    (worker,) = workers(1)
    worker.backward(np.ones(DIM))
    worker.optimizer.accumulate()
    with pytest.raises(InputError, match="merge first"):
        worker.optimizer.accumulate()
    merge([worker.optimizer])
    worker.optimizer.accumulate()


def test_before_the_first_merge_a_worker_divides_by_its_own_moment() -> None:
    (local,), (alone,) = workers(1), workers(1)
    for gradient in np.random.default_rng(8).standard_normal((3, DIM)):
        for worker in (local, alone):
            worker.backward(gradient)
            worker.optimizer.step(local=worker is local)
    np.testing.assert_array_equal(local.x, alone.x)
    assert "merged" not in local.optimizer.state[local.parameters[0]]


def test_a_parameter_without_gradient_has_the_gradient_zero() -> None:
    (bare,), (zero,) = workers(1, beta1=0.5), workers(1, beta1=0.5)
    for gradient in ([1.0] * DIM, [1.0, 1.0, 0.0, 0.0, 0.0]):
        for worker in (bare, zero):
            worker.backward(np.array(gradient))
        if not gradient[-1]:
            bare.parameters[1].grad = None
        for worker in (bare, zero):
            worker.optimizer.step()
    np.testing.assert_array_equal(bare.x, zero.x)


def test_the_learning_rate_is_that_of_the_groups() -> None:
    first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    groups: list[dict[str, Any]] = [{"params": [first]}, {"params": [second], "lr": 0.25}]
    optimizer = KStepAdam(groups, lr=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    moves = []
    for _ in range(2):
        before = first.item(), second.item()
        first.grad, second.grad = torch.ones(1), torch.ones(1)
        optimizer.step()
        scheduler.step()
        moves.append((before[0] - first.item(), before[1] - second.item()))
    np.testing.assert_allclose(moves, [(0.5, 0.25), (0.25, 0.125)], rtol=1e-6)


def test_state_between_merges_survives_a_checkpoint(tmp_path: Path) -> None:
    gradients = np.random.default_rng(7).standard_normal((6, 1, DIM)).astype(np.float32).astype(np.float64)
    models = [nn.Linear(DIM, 1, bias=False) for _ in range(2)]
    optimizers = [KStepAdam(model.parameters(), beta1=0.5) for model in models]

    def go(model: nn.Linear, optimizer: KStepAdam, t: int) -> None:
        model.weight.grad = torch.from_numpy(gradients[t]).float()
        optimizer.step(local=t != 0)

    for t in range(4):
        go(models[0], optimizers[0], t)
    checkpoint.save(tmp_path, models[0], optimizers[0], {}, checkpoint.Saved({}, None, {}))
    checkpoint.load(tmp_path, models[1], optimizers[1], {})
    for t in range(4, 6):
        for model, optimizer in zip(models, optimizers, strict=True):
            go(model, optimizer, t)
    assert torch.equal(models[0].weight, models[1].weight)


def test_workers_that_load_one_state_do_not_share_it() -> None:
    (source,), team = workers(1), workers(2)
    source.backward(np.ones(DIM))
    source.optimizer.step()
    saved = source.optimizer.state_dict()
    for worker in team:
        worker.optimizer.load_state_dict(saved)
    team[0].backward(np.full(DIM, 3.0))
    team[0].optimizer.step()
    np.testing.assert_array_equal(team[1].state("square"), source.state("square"))
    assert (team[0].state("square") != source.state("square")).all()


def test_a_loaded_optimizer_owes_nothing_and_so_does_a_copy() -> None:
    (worker,) = workers(1)
    worker.backward(np.ones(DIM))
    worker.optimizer.step()
    saved = copy.deepcopy(worker.optimizer.state_dict())
    worker.optimizer.accumulate()
    worker.optimizer.load_state_dict(saved)
    before = worker.x
    merge([worker.optimizer])
    np.testing.assert_array_equal(worker.x, before)
    copied = copy.deepcopy(worker.optimizer)
    copied.accumulate()
    worker.optimizer.accumulate()


def test_a_closure_gives_the_loss() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = KStepAdam([weight], lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    assert optimizer.step(closure) == 2.0
    np.testing.assert_allclose(weight.detach().numpy(), [0.9, 0.9], rtol=1e-6)


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"lr": -0.1}, "KStepAdam.lr=-0.1: must be 0 or more"),
        ({"lr": float("inf")}, "KStepAdam.lr=inf"),
        ({"beta1": 1.0}, "KStepAdam.beta1=1.0: must be from 0 to less than 1"),
        ({"beta1": -0.1}, "KStepAdam.beta1=-0.1"),
        ({"beta2": 1.0}, "KStepAdam.beta2=1.0"),
        ({"beta2": -0.1}, "KStepAdam.beta2=-0.1"),
        ({"eps": 0.0}, "KStepAdam.eps=0.0: must be more than 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(chosen: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        workers(1, **chosen)


def test_settings_at_their_bounds_are_welcome() -> None:
    workers(1, lr=0.0, beta1=0.0, beta2=0.0, eps=1e-30)


def test_what_does_not_belong_together_is_not_merged() -> None:
    (one,), (literal,) = workers(1), workers(1, literal=True)
    other = KStepAdam([nn.Parameter(torch.zeros(3, dtype=torch.float64))])
    with pytest.raises(InputError, match="merge\\(\\) of no optimizers"):
        merge([])
    for optimizer in (one.optimizer, literal.optimizer, other):
        optimizer.accumulate()
    with pytest.raises(InputError, match="literal"):
        merge([one.optimizer, literal.optimizer])
    with pytest.raises(InputError, match="differ in number or shape"):
        merge([one.optimizer, other])
    with pytest.raises(InputError, match="load_parameters: shapes"):
        one.optimizer.load_parameters([torch.zeros(3)])


def test_a_worker_that_saw_no_gradient_has_no_second_moment_to_give() -> None:
    (worker,) = workers(1)
    with pytest.raises(InputError, match="saw no gradient"):
        merge([worker.optimizer])


def test_sparse_gradients_are_refused_before_anything_changes() -> None:
    plain, table = nn.Parameter(torch.ones(2)), nn.Embedding(3, 2, sparse=True)
    optimizer = KStepAdam([plain, table.weight])
    plain.grad = torch.ones(2)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(InputError, match="sparse"):
        optimizer.step()
    assert not optimizer.state[plain]["square"].any()
