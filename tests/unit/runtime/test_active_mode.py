"""An active mode performs what a discipline says on real parameters: leases done, steps told, GBA in order is Sync."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.data.loader import Lease
from hotrow.errors import InputError
from hotrow.modes import GBA, Async, BackupWorkers, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import Effect, Event, Grant, RunFacts
from hotrow.optim import KStepAdam
from hotrow.runtime import BatchResult, LeaseQueue
from hotrow.runtime.active_mode import ActiveMode
from hotrow.runtime.clock import Elapsed, RunClock
from hotrow.runtime.effect_loop import EffectLoop
from hotrow.runtime.executors import WorkerLoss
from hotrow.runtime.state import RunState
from hotrow.runtime.step_cut import CutDecision
from hotrow.runtime.training_performer import StepResult, TrainingPerformer
from hotrow.server import ParameterServer
from hotrow.server.replicas import ReplicatedParameters
from hotrow.staleness import Cutoff, Staleness, Statistics
from hotrow.worker import Learner
from hotrow.worker.core import Gradients
from unit.trainer.conftest import Net

LOCAL = 8


def batches(number: int, local: int = LOCAL) -> Iterator[Batch]:
    """The same samples for any size of local batches."""
    rng = np.random.default_rng(5)
    ids, numbers = rng.integers(0, 30, (number * LOCAL, 2)), rng.normal(size=(number * LOCAL, 1)).astype(np.float32)
    labels = rng.integers(0, 2, (number * LOCAL, 1)).astype(np.float32)
    for start in range(0, number * LOCAL, local):
        rows = slice(start, start + local)
        yield Batch((FeatureBlock("t", "one", ("a", "b"), ids[rows].reshape(-1)),), numbers[rows], labels[rows])


@dataclass(slots=True, eq=False)
class Pulled:
    """A batch that a worker looked up and computed."""

    grant: Grant
    step: int
    gradients: Gradients


@dataclass(slots=True, eq=False)
class ScriptedExecutor:
    """Notes what it is to compute, and gives back what the test says."""

    lock: AbstractContextManager[object] = field(default_factory=nullcontext)
    submitted: list[Grant] = field(default_factory=list)
    results: list[BatchResult] = field(default_factory=list)
    has_result: bool = False

    runs_ahead = False

    def submit(self, grant: Grant, batch: Batch) -> None:
        self.submitted.append(grant)

    def set_step(self, step: int) -> None: ...

    def next_result(self) -> BatchResult:
        return self.results.pop()

    def cut(self, push: Callable[[BatchResult], int]) -> CutDecision:
        raise AssertionError("nobody is lost in these tests")

    def note_unanswered(self, grant: int) -> None: ...

    must_cut = False

    def take_lost_workers(self) -> list[WorkerLoss]:
        return []

    def close(self, *, failed: bool = False) -> None: ...


def leases() -> Iterator[tuple[Lease, Batch]]:
    """Data without end; which batch is trained under a lease a test says when it is pulled."""
    for number in count():
        yield Lease(number, 0, number, LOCAL), Batch((), np.zeros((LOCAL, 1), np.float32))


class Run:
    """An active mode, and workers that pull and push when a script says so."""

    def __init__(self, mode: Mode, workers: int, parts: int, optimizer: str = "sgd", local: int = LOCAL) -> None:
        torch.manual_seed(1)
        self.model = Net()
        rows = {"sgd": hr.SGD(lr=0.1), "adam": hr.Adam(lr=0.01)}[optimizer]
        tables = LocalTables({"t": hr.Table(dim=4, optimizer=rows, init=hr.Normal(std=0.3), seed=2)}, threads=1)
        dense: torch.optim.Optimizer
        if mode.name == "k_step":
            dense = KStepAdam(self.model.parameters(), lr=0.01)
        elif optimizer == "sgd":
            dense = torch.optim.SGD(self.model.parameters(), lr=0.1)
        else:
            dense = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.server = ParameterServer(self.model, tables, dense)
        self.server.late = mode.late
        self.replicas = ReplicatedParameters(self.server, workers) if mode.dense == "local" else None
        self.parameters = self.replicas or self.server
        self.state, self.statistics, self.executor = RunState(), Statistics(), ScriptedExecutor()
        self.done: list[int] = []
        queue = LeaseQueue(leases(), done=lambda lease: self.done.append(lease.number))
        queue.open_epoch()
        facts = RunFacts(workers=workers, local_batch=local, global_batch=local * parts)
        performer = TrainingPerformer(mode, self.parameters, queue, self.state, self.statistics, observer=None)
        loop = EffectLoop(mode, facts, mode.start(facts), queue, performer, self.statistics)
        self.active = ActiveMode(loop, performer, self.executor, queue, RunClock())
        for worker in range(workers):
            self.active.join(worker)

    @property
    def samples(self) -> int:
        return self.state.samples

    @property
    def steps(self) -> int:
        return self.state.step

    @property
    def outstanding(self) -> int:
        return self.active.loop.unpushed

    def ask(self, worker: int) -> None:
        assert self.active.request_batch(worker)

    def pull(self, batch: Batch) -> Pulled:
        """The first grant that waits: looked up and computed from parameters as they stand."""
        grant = self.executor.submitted.pop(0)
        rows = self.server.tables.lookup(batch, learn=True)
        model = copy.deepcopy(self.model) if self.replicas is None else self.replicas.copies[grant.worker]
        return Pulled(grant, self.active.step, Learner(model).learn(batch, rows, self.server.tables))

    def push(self, pulled: Pulled) -> list[StepResult]:
        """What its gradients lead to."""
        grant, gradients = pulled.grant, pulled.gradients
        self.parameters.park(grant.grant, gradients, grant.worker)
        loss, output = float(gradients.loss), gradients.output
        self.executor.results.append(
            BatchResult(grant, pulled.step, pulled.step, gradients.samples, loss, output, Elapsed())
        )
        self.active.finish_next()
        steps = list(self.active.performer.steps)
        self.active.performer.steps.clear()
        return steps

    def weights(self) -> tuple[list[np.ndarray], np.ndarray]:
        (chunk,) = self.server.tables.tiers["t"].export()
        return [each.detach().numpy() for each in self.model.parameters()], chunk.values[np.argsort(chunk.keys)]


def in_order(run: Run, parts: int, steps: int) -> list[float]:
    """All pulls of a step before its pushes, and all pushes before the next pulls; the mean loss of each step."""
    data = batches(parts * steps)
    losses = []
    for _ in range(steps):
        for worker in range(parts):
            run.ask(worker)
        finished = [run.pull(next(data)) for _ in range(parts)]
        for each in reversed(finished):
            run.push(each)
        losses.append(float(np.mean([float(each.gradients.loss) for each in finished])))
    return losses


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_gba_in_the_scripted_order_is_sync(optimizer: str) -> None:
    gba, sync = Run(GBA(tolerance=0), 4, 4, optimizer), Run(Sync(), 1, 1, optimizer, local=4 * LOCAL)
    losses = in_order(gba, 4, steps=25)
    expected = []
    for batch in batches(100, local=4 * LOCAL):
        sync.ask(0)
        finished = sync.pull(batch)
        expected.append(float(finished.gradients.loss))
        sync.push(finished)
    assert gba.steps == sync.steps == 25
    np.testing.assert_allclose(losses, expected, atol=1e-6)
    for ours, theirs in zip(gba.weights()[0], sync.weights()[0], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6 if optimizer == "sgd" else 1e-5)
    np.testing.assert_allclose(gba.weights()[1], sync.weights()[1], atol=1e-6 if optimizer == "sgd" else 1e-5)


def test_gba_out_of_order_is_not() -> None:
    late, sync = Run(GBA(), 4, 4), Run(Sync(), 1, 1, local=4 * LOCAL)
    data = batches(100)
    for worker in range(4):
        late.ask(worker)
    under_way = [late.pull(next(data)) for _ in range(4)]
    for batch in data:  # each pull comes three pushes after the one before
        finished = under_way.pop(0)
        late.push(finished)
        late.ask(finished.grant.worker)
        under_way.append(late.pull(batch))
    for batch in batches(100, local=4 * LOCAL):
        sync.ask(0)
        sync.push(sync.pull(batch))
    assert np.abs(late.weights()[1] - sync.weights()[1]).max() > 1e-4
    assert (late.statistics.gradient.mean or 0) > 0.5


def test_leases_are_done_with_their_step_and_not_before() -> None:
    run = Run(Sync(), 2, 2)
    data = batches(2)
    run.ask(0)
    run.ask(1)
    first, second = run.pull(next(data)), run.pull(next(data))
    assert run.outstanding == 2
    assert run.push(second) == []
    assert (run.done, run.outstanding, run.server.parked) == ([], 1, 1)
    (stepped,) = run.push(first)
    assert (run.done, run.outstanding, run.server.parked) == ([0, 1], 0, 0)
    assert (stepped.step, stepped.samples, len(stepped.batches), stepped.refused) == (0, 16, 2, 0)
    assert (run.samples, run.steps) == (16, 1)


def test_what_is_late_for_its_mode_is_done_and_not_applied() -> None:
    run = Run(BackupWorkers(backups=1), 2, 2)
    data = batches(2)
    run.ask(0)
    run.ask(1)
    first, second = run.pull(next(data)), run.pull(next(data))
    assert len(run.push(second)) == 1
    before = copy.deepcopy(run.weights())
    assert run.push(first) == []
    assert run.done == [1, 0]
    assert (run.samples, run.server.parked) == (8, 0)
    assert all((a == b).all() for a, b in zip(before[0], run.weights()[0], strict=True))
    assert (before[1] == run.weights()[1]).all()
    assert run.statistics.dropped == {"late": 1}


def test_hybrid_applies_rows_first_and_tells_of_dense_steps_only() -> None:
    run = Run(Hybrid(max_in_flight=1), 2, 2)
    data = batches(2)
    run.ask(0)
    run.ask(1)
    first, second = run.pull(next(data)), run.pull(next(data))
    dense, rows = copy.deepcopy(run.weights())
    assert run.push(first) == []
    assert (rows != run.weights()[1]).any()
    assert all((a == b).all() for a, b in zip(dense, run.weights()[0], strict=True))
    assert (run.samples, run.steps, run.done) == (8, 0, [])  # rows of these samples are trained
    (stepped,) = run.push(second)
    assert any((a != b).any() for a, b in zip(dense, run.weights()[0], strict=True))
    assert (stepped.samples, run.samples, run.steps, sorted(run.done)) == (16, 16, 1, [0, 1])


def test_rows_whose_gradient_is_refused_are_told_with_the_step() -> None:
    run = Run(Async(), 1, 1)
    run.ask(0)
    finished = run.pull(next(batches(1)))
    gradients = finished.gradients.row_gradients("t").gradients
    gradients[0] = np.nan
    (stepped,) = run.push(finished)
    assert stepped.refused == 1


def test_k_step_moves_copies_and_merges_before_a_rest() -> None:
    run = Run(KStep(k=3, warmup=0), 2, 2)
    data = batches(10)
    assert run.replicas is not None
    copies = run.replicas.copies

    def step() -> None:
        run.ask(0)
        run.ask(1)
        for finished in [run.pull(next(data)), run.pull(next(data))]:
            run.push(finished)

    def same(*models: torch.nn.Module) -> bool:
        first, *others = (torch.cat([each.flatten() for each in model.parameters()]) for model in models)
        return all(torch.equal(first, other) for other in others)

    step()
    step()
    assert not same(*copies)
    before = copy.deepcopy(run.model)
    assert same(before, run.model)
    run.active.drain()
    assert same(run.model, *copies)
    assert not same(before, run.model)
    run.active.resume()
    step()
    assert same(run.model, *copies)  # t = 3
    assert (run.steps, run.samples, len(run.done), run.server.parked) == (3, 48, 6, 0)


def test_closing_forgets_what_was_not_applied_and_tells_the_last_counts() -> None:
    run = Run(Sync(), 2, 2)
    run.ask(0)
    run.ask(1)
    run.push(run.pull(next(batches(1))))
    run.active.close()
    assert run.server.parked == 0
    assert run.done == []
    assert run.active.loop.grants == 2
    after = Sync().start(RunFacts(2, LOCAL, 2 * LOCAL))
    run.statistics.update(after.counts)  # which begin at 0 again


@pytest.mark.parametrize("mode", [Sync(), GBA(), Hybrid(), KStep()], ids=lambda mode: mode.name)
def test_a_mode_names_the_pushes_that_its_grants_wait_for(mode: Mode) -> None:
    discipline = mode.start(RunFacts(2, LOCAL, 2 * LOCAL))
    assert discipline.grants.groups == mode.groups  # type: ignore[attr-defined]


def test_late_ids_are_counted_with_the_statistics_of_a_run() -> None:
    run = Run(Async(staleness=Staleness(decay=Cutoff(tolerance=0))), 2, 2)
    (batch,) = batches(1)
    run.ask(0)
    run.ask(1)
    for finished in [run.pull(batch), run.pull(batch)]:
        run.push(finished)
    ids = run.statistics.ids.counts
    assert set(ids) == {0, 1}
    assert ids[0] == ids[1] == run.statistics.ids_decayed == run.statistics.ids_zero_weight > 0


class Generous:
    """A discipline that grants a batch to a worker that only joins."""

    step = 0
    counts: ClassVar[dict[str, int]] = {}

    def on(self, event: Event) -> list[Effect]:
        return [Grant(1, grant=9, token=0)]


def test_a_mode_that_grants_more_than_there_is_data_is_named() -> None:
    run = Run(Sync(), 1, 1)
    run.active.loop.discipline, run.active.loop.leases = Generous(), LeaseQueue(iter([]))
    with pytest.raises(InputError, match="mode 'sync' made grant 9 for worker 1 without a request, and no data"):
        run.active.join(1)
