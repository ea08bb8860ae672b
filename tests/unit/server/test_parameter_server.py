"""The server combines dense gradients as the float64 reference does, and keeps pushes until their step."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.client.aggregate import RowGradients
from hotrow.modes.base import Apply, GradientPart, Group
from hotrow.optim.sparse import Swap
from hotrow.server import ParameterServer
from hotrow.server.core import ApplyResult
from hotrow.staleness import Cutoff, Histogram, IdCounts, Inverse, Power, Staleness, WeightCorrection
from hotrow.worker import Gradients
from oracles.modes import dense_aggregate

LR = 0.5


class Two(nn.Module):
    """Two tensors of three numbers, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        self.second = nn.Parameter(torch.tensor([0.5, 0.25, -1.0]))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("batches", torch.tensor(0))
        self.register_buffer("flag", torch.tensor(False))


def server_of(optimizer: str = "sgd", clip: float | None = None, late: Staleness | None = None) -> ParameterServer:
    model = Two()
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    made = kind(model.parameters(), lr=LR)
    client = LocalTables({"t": hr.Table(dim=2, optimizer=hr.SGD(lr=LR))}, threads=1)
    server = ParameterServer(model, client, made, clip=clip)
    server.late = late
    return server


def push(first: object, second: object = (0.0, 0.0, 0.0), samples: int = 4, **more: object) -> Gradients:
    dense = [None if each is None else torch.tensor(each, dtype=torch.float32) for each in (first, second)]
    return Gradients(samples, dense, {}, torch.zeros(()), torch.zeros(samples), **more)  # type: ignore[arg-type]


def step_of(server: ParameterServer, pushes: list[tuple[Gradients, float]], step: int = 0, token: int = 0) -> Apply:
    parts = []
    for number, (given_push, weight) in enumerate(pushes, start=1):
        server.park(number, given_push)
        parts.append(GradientPart(number, token, token, given_push.samples, weight))
    return Apply("both", step, tuple(parts))


def moved(server: ParameterServer, effect: Apply) -> np.ndarray:
    """What the parameters lost, over the learning rate."""
    before = torch.stack(list(server.model.parameters())).detach().double()
    server.apply(effect, samples=effect.samples)
    return ((before - torch.stack(list(server.model.parameters())).detach()) / LR).numpy()


three = st.lists(st.floats(-3, 3, width=32), min_size=3, max_size=3)
weights = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 1.0])


@given(st.lists(st.tuples(three, three, st.integers(1, 9), weights), min_size=1, max_size=5))
def test_the_dense_step_is_the_references(pushes: list[tuple[list[float], list[float], int, float]]) -> None:
    server = server_of()
    effect = step_of(server, [(push(first, second, samples), w) for first, second, samples, w in pushes])
    expected = dense_aggregate([(np.array([a, b]), samples, weight) for a, b, samples, weight in pushes])
    np.testing.assert_allclose(moved(server, effect), expected, atol=2e-6)
    assert server.parked == 0


def test_parts_of_no_weight_stay_in_the_divisor() -> None:
    server = server_of()
    effect = step_of(server, [(push([1.0, 1.0, 1.0], samples=2), 1.0), (push([5.0, 5.0, 5.0], samples=6), 0.0)])
    np.testing.assert_allclose(moved(server, effect)[0], 2 / 8, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("late", [None, Staleness(decay=Cutoff(tolerance=1), movement=1.0)])
@pytest.mark.parametrize("second", [None, [0.0, 0.0, 0.0]])
def test_a_bad_gradient_of_no_weight_harms_nobody(bad: float, late: Staleness | None, second: object) -> None:
    server = server_of(late=late)
    server.park(1, push([bad] * 3, [bad] * 3))
    server.park(2, push([1.0] * 3, second))
    parts = (
        GradientPart(1, 0, 0, 4, 0.0),
        GradientPart(2, 9, 9, 4, 1.0),
    )  # the first is 9 late: too much also for half of it
    found = moved(server, Apply("both", 9, parts))
    np.testing.assert_allclose(found[0], 0.5, atol=1e-6)
    assert (found[1] == 0).all()


def test_where_all_parts_weigh_nothing_nothing_is_touched() -> None:
    server = server_of("adam")
    server.apply(step_of(server, [(push([1.0] * 3), 1.0)]), samples=4)
    before = copy.deepcopy((server.model.state_dict(), server.optimizer.state_dict()))  # type: ignore[union-attr]
    server.apply(step_of(server, [(push([1.0] * 3), 0.0), (push([2.0] * 3), 0.0)], step=1), samples=8)
    after = (server.model.state_dict(), server.optimizer.state_dict())  # type: ignore[union-attr]
    assert str(before) == str(after)
    assert server.parked == 0


def test_a_parameter_that_a_part_did_not_use_takes_the_others() -> None:
    server = server_of("adam")
    server.apply(step_of(server, [(push([1.0] * 3, None), 1.0), (push([3.0] * 3, None), 1.0)]), samples=8)
    first, second = server.parameters
    state = server.optimizer.state  # type: ignore[union-attr]
    torch.testing.assert_close(state[first]["exp_avg"], torch.full((3,), 0.2))  # of a gradient of 2
    assert second not in state
    server.apply(step_of(server, [(push(None, [4.0] * 3), 1.0), (push([1.0] * 3, None), 1.0)], step=1), samples=16)
    torch.testing.assert_close(state[second]["exp_avg"], torch.full((3,), 0.2))


def test_gradients_are_clipped_once_combined() -> None:
    server = server_of(clip=1.0)
    effect = step_of(server, [(push([30.0, 0.0, 0.0]), 1.0), (push([0.0, 40.0, 0.0]), 1.0)])
    np.testing.assert_allclose(moved(server, effect)[0], [0.6, 0.8, 0.0], atol=1e-5)


def test_rates_are_scaled_from_where_they_started() -> None:
    server = server_of()
    for step, scale in enumerate((0.5, 0.1)):
        before = server.parameters[0].detach().clone()
        server.apply(step_of(server, [(push([1.0] * 3), 1.0)], step=step), samples=4, lr_scale=scale)
        torch.testing.assert_close(before - server.parameters[0], torch.full((3,), LR * scale))


def test_an_optimizer_that_counts_samples_is_told_them() -> None:
    model = Two()
    inside = torch.optim.Adagrad(model.parameters(), lr=0.1)
    optimizer = hr.optim.SwapOptimizer(inside, Swap(period=10, decay=0.5))
    server = ParameterServer(model, LocalTables({"t": hr.Table(dim=2)}, threads=1), optimizer)
    server.apply(step_of(server, [(push([2.0] * 3), 1.0)]), samples=4)
    server.apply(step_of(server, [(push([2.0] * 3), 1.0)], step=1), samples=25)  # two borders further
    torch.testing.assert_close(inside.state[server.parameters[0]]["sum"], torch.full((3,), 4 * 0.25 + 4))


@pytest.mark.parametrize(
    ("change", "tau", "weight"),
    [
        (0.0, 8, 1 / 4),  # a tensor at rest: half as late
        (10.0, 8, 1 / 8),  # one that moves: as late as it is
        (0.0, 1, 1.0),
    ],
)
def test_a_tensor_that_hardly_moves_makes_gradients_less_late(change: float, tau: int, weight: float) -> None:
    server = server_of(late=Staleness(decay=Inverse(), movement=3.0))
    server.apply(step_of(server, [(push([change / LR, 0.0, 0.0]), 1.0)]), samples=4)
    server.park(7, push([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]))
    found = moved(server, Apply("both", 10 + tau, (GradientPart(7, 10, 10, 4, 0.125),)))
    np.testing.assert_allclose(found[0], weight, rtol=1e-5)
    np.testing.assert_allclose(found[1], 1 / max(1, tau / 2), rtol=1e-5)  # the second has not moved at all


def test_movement_can_save_what_the_plain_cut_off_would_drop() -> None:
    server = server_of(late=Staleness(decay=Cutoff(tolerance=4), movement=1.0))
    server.park(1, push([1.0] * 3))
    found = moved(server, Apply("both", 8, (GradientPart(1, 0, 0, 4, 0.0),)))  # 8 late, but the tensors are at rest
    np.testing.assert_allclose(found[0], 1.0, atol=1e-6)
    server.park(2, push([1.0] * 3, [1.0] * 3))
    kept = copy.deepcopy(server.model.state_dict())
    server.apply(Apply("both", 20, (GradientPart(2, 0, 0, 4, 0.0),)), samples=8)
    assert str(kept) == str(server.model.state_dict())


@pytest.mark.parametrize(
    ("first_moves", "tau", "gradients", "spans"),
    [
        (0.0, 8, "both", (1.0, 1.0)),  # both at rest: 4 late, which counts in full
        (50.0, 8, "both", (0.0, 1.0)),  # the first is 8 late, the second 4
        (50.0, 8, "first", (0.0, 0.0)),  # a tensor without a gradient saves nothing
        (0.0, 9, "both", (0.0, 0.0)),
        (50.0, 4, "both", (1.0, 1.0)),
    ],
)
def test_counts_and_running_figures_follow_what_the_tensors_weighed(
    first_moves: float, tau: int, gradients: str, spans: tuple[float, float]
) -> None:
    server = server_of(late=Staleness(decay=Cutoff(tolerance=4), movement=1.0))
    server.apply(step_of(server, [(push([first_moves / LR, 0.0, 0.0]), 1.0)]), samples=4)
    second = [1.0] * 3 if gradients == "both" else None
    server.park(7, push([1.0] * 3, second, buffers=[torch.full((2,), 5.0), torch.tensor(1), torch.tensor(True)]))
    given = 1.0 if tau <= 4 else 0.0  # by the discipline
    applied = server.apply(Apply("both", 10 + tau, (GradientPart(7, 10, 10, 4, given),)), samples=8)
    least, greatest = spans
    assert applied.weights == WeightCorrection((least < 1) - (given < 1), (greatest == 0) - (given == 0))
    assert server.buffers[0].tolist() == ([5.0, 5.0] if greatest else [0.0, 0.0])


def test_without_movement_there_is_nothing_to_correct() -> None:
    server = server_of(late=Staleness(decay=Cutoff(tolerance=4)))
    server.park(1, push([1.0] * 3))
    assert server.apply(Apply("both", 8, (GradientPart(1, 0, 0, 4, 0.0),)), samples=4).weights == WeightCorrection()


def test_a_policy_for_rows_alone_leaves_dense_gradients() -> None:
    server = server_of(late=Staleness(decay=Power(reference=1.0), groups="embedding"))
    server.park(1, push([1.0] * 3))
    np.testing.assert_allclose(moved(server, Apply("both", 9, (GradientPart(1, 0, 0, 4, 1.0),)))[0], 1.0, atol=1e-6)


def rows_push(server: ParameterServer, samples: int = 4) -> Gradients:
    keys = np.arange(2)
    plan = server.tables.tiers["t"].find_or_init(keys)
    made = push([1.0] * 3, samples=samples)
    made.rows = {"t": RowGradients(keys, plan, np.ones((2, 2), np.float32))}
    return made


def values(server: ParameterServer) -> np.ndarray:
    out = np.empty((2, 2), np.float32)
    server.tables.tiers["t"].find(np.arange(2), out)
    return out


@pytest.mark.parametrize(("group", "weight"), [("both", 1.0), ("embedding", 0.25)])
def test_rows_weigh_by_their_own_lateness_or_by_their_share(group: Group, weight: float) -> None:
    server = server_of()
    server.park(1, rows_push(server))
    before = values(server)
    server.apply(Apply(group, 0, (GradientPart(1, 0, 0, 4, 0.25),)), samples=4)
    np.testing.assert_allclose(before - values(server), LR * weight, atol=1e-6)


def test_the_dense_part_first_and_rows_that_come_late() -> None:
    server = server_of()
    server.park(1, rows_push(server))
    rows_before = values(server)
    server.apply(Apply("dense", 0, (GradientPart(1, 0, 0, 4, 1.0),)), samples=0)
    assert (values(server) == rows_before).all()
    assert server.parked == 1
    server.apply(Apply("embedding", 1, (GradientPart(1, 0, 0, 4, 1.0),)), samples=4)
    assert (values(server) != rows_before).all()
    assert server.parked == 0


def test_rows_first_and_the_dense_part_when_its_step_comes() -> None:
    server = server_of()
    server.park(1, rows_push(server))
    rows_before, dense_before = values(server), server.parameters[0].detach().clone()
    server.apply(Apply("embedding", 0, (GradientPart(1, 0, 0, 4, 1.0),)), samples=4)
    rows_after = values(server)
    assert (rows_after != rows_before).all()
    assert (server.parameters[0] == dense_before).all()
    assert server.parked == 1
    applied = server.apply(Apply("dense", 0, (GradientPart(1, 0, 0, 4, 1.0),)), samples=4)
    assert applied == ApplyResult()
    assert (values(server) == rows_after).all()
    torch.testing.assert_close(dense_before - server.parameters[0], torch.full((3,), LR))
    assert server.parked == 0


def test_a_discarded_push_is_forgotten() -> None:
    server = server_of()
    server.park(1, push([1.0] * 3))
    server.discard(1)
    server.discard(1)
    assert server.parked == 0


def test_a_model_without_parameters_has_rows_all_the_same() -> None:
    client = LocalTables({"t": hr.Table(dim=2, optimizer=hr.SGD(lr=LR))}, threads=1)
    server = ParameterServer(nn.Module(), client, None)
    given_push = rows_push(server)
    given_push.dense = []
    server.park(1, given_push)
    before = values(server)
    server.apply(Apply("both", 0, (GradientPart(1, 0, 0, 4, 1.0),)), samples=4)
    np.testing.assert_allclose(before - values(server), LR, atol=1e-6)


def test_running_figures_go_on_by_the_mean_of_what_replicas_added() -> None:
    server = server_of()
    for buffer, start in zip(server.model.buffers(), (10, 3, True), strict=True):
        buffer.fill_(start)
    added: list[tuple[list[Tensor], float]] = [
        ([torch.tensor([1.0, 2.0]), torch.tensor(5), torch.tensor(True)], 0.5),
        ([torch.tensor([torch.nan, 0.0]), torch.tensor(7), torch.tensor(False)], 0.0),  # too late, and broken
        ([torch.tensor([3.0, 6.0]), torch.tensor(6), torch.tensor(True)], 1.0),
    ]
    effect = step_of(server, [(push([0.0] * 3, buffers=each), weight) for each, weight in added])
    server.apply(effect, samples=12)
    mean, batches, flag = server.model.buffers()
    torch.testing.assert_close(mean, torch.tensor([12.0, 14.0]))
    assert (int(batches), bool(flag)) == (9, False)  # as the last one changed them


def test_a_pull_brings_parameters_and_statistics() -> None:
    server, replica = server_of(), Two()
    with torch.no_grad():
        for each in [*server.model.parameters(), *server.model.buffers()]:
            each.add_(True if each.dtype == torch.bool else 7)
    server.pull_into(replica)
    assert str(replica.state_dict()) == str(server.model.state_dict())
    with torch.no_grad():
        replica.first.zero_()
    assert (server.parameters[0] != 0).all()


@pytest.mark.parametrize(
    ("late", "decayed", "zero_weight"),
    [
        (None, 0, 0),
        (Staleness(decay=Cutoff(tolerance=0)), 2, 2),
        (Staleness(decay=Cutoff(tolerance=1)), 0, 0),
        (Staleness(decay=Inverse(), by="version"), 0, 0),
        (Staleness(decay=Power(reference=0.5), by="version"), 2, 0),
        (Staleness(decay=Cutoff(tolerance=0), groups="dense"), 0, 0),
    ],
)
def test_ids_that_weigh_less_are_counted_one_by_one(late: Staleness | None, decayed: int, zero_weight: int) -> None:
    """Two ids in two pushes that were looked up together: those of the second step are one change late."""
    server = server_of(late=late)
    for grant in (1, 2):
        made = rows_push(server)
        versions = server.tables.tiers["t"].versions(made.row_gradients("t").plan)
        made.rows = {"t": replace(made.row_gradients("t"), versions=versions)}
        server.park(grant, made)
    first = server.apply(Apply("both", 0, (GradientPart(1, 0, 0, 4, 1.0),)), samples=4)
    second = server.apply(Apply("both", 1, (GradientPart(2, 0, 0, 4, 1.0),)), samples=8)
    assert first.ids == IdCounts(Histogram({0: 2}))
    assert second.ids == IdCounts(Histogram({1: 2}), decayed, zero_weight)
    assert second.weightless == zero_weight
