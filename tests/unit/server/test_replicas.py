"""Copies that move alone and merge are k-step Adam as the float64 reference has it."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.errors import ConfigError
from hotrow.modes.base import Apply, GradientPart
from hotrow.optim import KStepAdam
from hotrow.server import ParameterServer
from hotrow.server.replicas import ReplicatedParameters
from hotrow.worker import Gradients
from oracles.modes import KStepAdam as Reference

START = np.array([0.4, -0.3, 0.2])
LR = 0.01


class One(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(START, dtype=torch.float32))
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("batches", torch.tensor(0))
        self.register_buffer("ready", torch.tensor(False))


def server_of(beta1: float = 0.0) -> ParameterServer:
    model = One()
    optimizer = KStepAdam([model.weight], lr=LR, beta1=beta1)
    return ParameterServer(model, LocalTables({"t": hr.Table(dim=2)}, threads=1), optimizer)


def push(gradient: np.ndarray) -> Gradients:
    return Gradients(4, [torch.tensor(gradient, dtype=torch.float32)], {}, torch.zeros(()), torch.zeros(4))


def moved(replicas: ReplicatedParameters, pushes: Mapping[int, Sequence[Gradients]], lr_scale: float = 1.0) -> None:
    """A step: by worker, its batches. Nobody is merged yet."""
    grants = count(1)
    parts = []
    for worker, own in pushes.items():
        for gradients in own:
            parts.append(GradientPart(next(grants), 0, 0, gradients.samples, 1.0))
            replicas.park(parts[-1].grant, gradients, worker)
    replicas.apply(Apply("embedding", 0, tuple(parts)), samples=4, lr_scale=lr_scale)


def merged(replicas: ReplicatedParameters) -> None:
    replicas.apply(Apply("dense", 0, ()), samples=4)


def weights(replicas: ReplicatedParameters) -> list[np.ndarray]:
    return [model.get_parameter("weight").detach().numpy().astype(np.float64) for model in replicas.copies]


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_moves_and_merges_are_those_of_the_reference(beta1: float) -> None:
    rng = np.random.default_rng(3)
    server = server_of(beta1=beta1)
    replicas = ReplicatedParameters(server, 3)
    reference = Reference(START, 3, lr=LR, beta1=beta1)
    for step in range(13):
        merges = step % 4 == 0
        gradients = rng.normal(size=(3, 3))
        reference.step(lambda i, _x, g=gradients: g[i], merge=merges)  # type: ignore[misc]
        moved(replicas, {worker: [push(gradients[worker])] for worker in range(3)})
        if merges:
            merged(replicas)
        else:
            replicas.settle()
        for ours, theirs in zip(weights(replicas), reference.x, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-6)
        if merges:
            np.testing.assert_allclose(server.model.get_parameter("weight").detach(), reference.x[0], atol=2e-6)


def test_settling_twice_moves_once() -> None:
    replicas = ReplicatedParameters(server_of(), 2)
    moved(replicas, {0: [push(np.ones(3))], 1: [push(np.ones(3))]})
    replicas.settle()
    before = weights(replicas)
    replicas.settle()
    assert (np.array(weights(replicas)) == np.array(before)).all()


def test_a_merge_before_a_rest_moves_nobody_by_a_gradient() -> None:
    server = server_of()
    replicas = ReplicatedParameters(server, 2)
    for number in range(3):
        moved(replicas, {0: [push(np.ones(3))], 1: [push(-np.ones(3))]})
        if number == 0:
            merged(replicas)
        else:
            replicas.settle()
    mean = np.mean(weights(replicas), axis=0)
    merged(replicas)
    for each in weights(replicas):
        np.testing.assert_allclose(each, mean, atol=1e-7)
    np.testing.assert_allclose(server.model.get_parameter("weight").detach(), mean, atol=1e-7)


def test_a_worker_with_several_batches_moves_by_each() -> None:
    replicas = ReplicatedParameters(server_of(), 2)
    one_by_one = ReplicatedParameters(server_of(), 2)
    first, second = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.5, 1.0])
    for each in (replicas, one_by_one):
        moved(each, {0: [push(first)], 1: [push(second)]})
        merged(each)
    moved(replicas, {0: [push(first), push(second)], 1: [push(second)]})
    replicas.settle()
    moved(one_by_one, {0: [push(first)]})
    moved(one_by_one, {0: [push(second)], 1: [push(second)]})
    one_by_one.settle()
    np.testing.assert_allclose(weights(replicas), weights(one_by_one), atol=1e-7)
    moved(replicas, {0: [push(first), push(second)], 1: [push(second)]})
    merged(replicas)
    moved(one_by_one, {0: [push(first)]})
    moved(one_by_one, {0: [push(second)], 1: [push(second)]})
    merged(one_by_one)
    np.testing.assert_allclose(weights(replicas), weights(one_by_one), atol=1e-7)


def test_a_worker_without_a_batch_so_far_starts_from_the_others() -> None:
    server = server_of()
    replicas = ReplicatedParameters(server, 3)
    moved(replicas, {1: [push(np.ones(3))]})
    merged(replicas)
    ours = weights(replicas)
    assert (ours[0] == ours[1]).all()
    assert (ours[2] == ours[1]).all()
    assert (ours[1] != START.astype(np.float32)).all()
    moved(replicas, {0: [push(np.ones(3))]})
    replicas.settle()  # it has the merged second moment: no first step of its own


def test_rates_are_scaled() -> None:
    full, half = ReplicatedParameters(server_of(), 1), ReplicatedParameters(server_of(), 1)
    for replicas, scale in ((full, 1.0), (half, 0.5)):
        moved(replicas, {0: [push(np.ones(3))]}, scale)
        merged(replicas)
    np.testing.assert_allclose(START - weights(half)[0], (START - weights(full)[0]) / 2, atol=1e-7)


def test_the_servers_optimizer_goes_on_from_the_merge() -> None:
    server = server_of()
    replicas = ReplicatedParameters(server, 2)
    for _ in range(3):
        moved(replicas, {0: [push(np.ones(3))], 1: [push(2 * np.ones(3))]})
        merged(replicas)
    assert server.optimizer is not None
    state = server.optimizer.state[server.parameters[0]]
    assert state["step"] == 3
    assert (state["merged"] > state["square"] / 3).all()
    again = ReplicatedParameters(server, 2)
    moved(again, {0: [push(np.ones(3))], 1: [push(np.ones(3))]})
    merged(again)
    assert server.optimizer.state[server.parameters[0]]["step"] == 4


def test_groups_of_parameters_keep_their_settings() -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False))
    groups: list[dict[str, Any]] = [
        {"params": [model[1].weight], "lr": 0.1},
        {"params": [model[0].weight]},
    ]  # in another order, too
    optimizer = KStepAdam(groups, lr=0.001)
    server = ParameterServer(model, LocalTables({"t": hr.Table(dim=2)}, threads=1), optimizer)
    before = [each.detach().clone() for each in server.parameters]
    replicas = ReplicatedParameters(server, 2)
    ones = [
        Gradients(4, [torch.ones_like(each) for each in server.parameters], {}, torch.zeros(()), torch.zeros(4))
        for _ in range(2)
    ]
    moved(replicas, {0: ones[:1], 1: ones[1:]})
    merged(replicas)
    changes = [float((old - new).mean().detach()) for old, new in zip(before, server.parameters, strict=True)]
    assert changes == pytest.approx([0.001, 0.1], rel=1e-3)


def test_running_statistics_are_the_mean_of_the_workers() -> None:
    server = server_of()
    replicas = ReplicatedParameters(server, 2)
    for number, model in enumerate(replicas.copies):
        model.get_buffer("seen").fill_(number + 5)
    moved(replicas, {0: [push(np.ones(3))], 1: [push(np.ones(3))]})
    merged(replicas)
    assert [float(model.get_buffer("seen")) for model in (*replicas.copies, server.model)] == [5.5, 5.5, 5.5]


def test_counts_are_the_largest_of_the_workers() -> None:
    """As on a cluster, where ranks agree by a maximum."""
    server = server_of()
    replicas = ReplicatedParameters(server, 3)
    for model, (batches, ready) in zip(replicas.copies, ((3, False), (7, True), (0, False)), strict=True):
        model.get_buffer("batches").fill_(batches)
        model.get_buffer("ready").fill_(ready)
    moved(replicas, {0: [push(np.ones(3))], 1: [push(np.ones(3))]})
    merged(replicas)
    assert [int(model.get_buffer("batches")) for model in (*replicas.copies, server.model)] == [7] * 4
    assert all(model.get_buffer("ready") for model in (*replicas.copies, server.model))


@pytest.mark.parametrize("adam", [True, False])
def test_another_optimizer_is_refused_with_the_right_one(adam: bool) -> None:
    model = One()
    optimizer = torch.optim.Adam([model.weight]) if adam else None
    server = ParameterServer(model, LocalTables({"t": hr.Table(dim=2)}, threads=1), optimizer)
    with pytest.raises(ConfigError, match="KStepAdam, not with " + ("Adam" if adam else "no optimizer")):
        ReplicatedParameters(server, 2)
