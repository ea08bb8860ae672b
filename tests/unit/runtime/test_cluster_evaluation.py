"""Trainers evaluate: the figures are those of an evaluation in the driver, and the driver sees no predictions."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow import checkpoint
from hotrow.data.loader import Loader
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.errors import HotrowError, InputError
from hotrow.metrics import error_sketch, sketch
from hotrow.modes import GBA, Async, Hybrid, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.cluster.backend import ClusterBackend
from hotrow.runtime.cluster.evaluation import ClusterEvaluation
from hotrow.runtime.cluster.reading_roles import ReadingRoles
from hotrow.runtime.losses import RoleLost, SavedRows, WorkersLost
from hotrow.runtime.membership import ScaleRequest
from hotrow.runtime.state import RunState
from hotrow.runtime.step_cut import CutDecision
from hotrow.transport.messages import BeginEvaluation
from hotrow.types import RoleId
from hotrow.worker.evaluation import EvaluationService
from hotrow.worker.evaluators import AnyEvaluator
from hotrow.worker.losses import Task
from unit.runtime.cluster_threads import SAMPLES, Cluster, batches, cluster
from unit.runtime.loader_threads import Processes

ROWS, BATCH = 500, 16
IDS = (
    {"column": "a", "table": "t"},
    {"column": "b", "table": "t"},
    {"column": "h", "table": "t", "sequence": 5},
)


def schema(label: str | tuple[str, ...] = "y", **more: Any) -> Schema:
    return Schema(label=label, numbers=("x0", "x1", "x2"), ids=IDS, **more)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = np.random.default_rng(4)
    columns = {name: pa.array(chance.integers(0, 50, ROWS)) for name in "ab"}
    columns["h"] = pa.array([chance.integers(0, 50, length).tolist() for length in chance.integers(0, 4, ROWS)])
    columns |= {f"x{place}": pa.array(chance.normal(size=ROWS).astype(np.float32)) for place in range(3)}
    columns |= {name: pa.array(chance.integers(0, 2, ROWS)) for name in ("y", "z")}
    columns |= {"w": pa.array(chance.random(ROWS)), "user": pa.array(chance.integers(0, 9, ROWS))}
    columns["price"] = pa.array(chance.normal(size=ROWS))
    path = tmp_path_factory.mktemp("data") / "x.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=64)
    return path


def in_the_driver(site: ClusterBackend, loader: Loader, task: Task = "classification") -> AnyEvaluator:
    judge = AnyEvaluator(task)
    for _, batch in loader:
        judge.add(site.predict(batch), batch)
    return judge


def trained(made: Cluster, state: RunState, mode: Mode, trainers: int, count: int = 12) -> TrainingLoop:
    """Some steps, the mode still open."""
    loop = TrainingLoop(made.site, state, mode=mode, facts=RunFacts(trainers, SAMPLES, 2 * SAMPLES))
    leases = LeaseQueue(batches(count))
    leases.open_epoch()
    for number, _ in enumerate(loop.steps(leases, 0)):
        if number == 2:
            break
    return loop


@pytest.mark.parametrize(
    ("label", "weight", "task"),
    [("y", None, "classification"), (("y", "z"), "w", "classification"), ("price", "w", "regression")],
    ids=["one label", "two labels with weights", "regression"],
)
@pytest.mark.parametrize(("trainers", "embedding_workers"), [(1, 0), (3, 0), (2, 1)])
def test_figures_have_the_bits_of_an_evaluation_in_the_driver(
    file: Path, label: Any, weight: str | None, task: Task, trainers: int, embedding_workers: int
) -> None:
    outputs = 1 if isinstance(label, str) else len(label)
    source = ParquetSource(file, schema(label, weight=weight))
    with cluster(RunState(), trainers, embedding_workers, outputs=outputs, task=task) as made:
        found = made.site.evaluate(Loader(source, BATCH))
        wanted = in_the_driver(made.site, Loader(source, BATCH), task)
        assert found is not None
        assert found.metrics() == wanted.metrics()
        assert (found.rows, found.auc_error) == (ROWS, 0.0)
        assert found.scores is not None
        assert wanted.scores is not None
        assert found.scores.pictures() == wanted.scores.pictures()
        figures = [made.figures(name) for name in made.addresses]
        assert sum(each["loaded_samples"] for each in figures) == ROWS, "trainers have read"


@pytest.mark.parametrize(
    ("mode", "trainers"),  # two ranks of one process cannot meet
    [(Sync(), 1), (Sync(look_ahead=1), 1), (Hybrid(), 1), (Async(), 2), (GBA(), 2)],
    ids=["sync", "sync with look-ahead", "hybrid", "async", "gba"],
)
def test_between_two_steps_of_a_mode_the_figures_are_those_of_the_driver(file: Path, mode: Mode, trainers: int) -> None:
    state, source = RunState(), ParquetSource(file, schema())
    with cluster(state, trainers, 0) as made:
        loop = trained(made, state, mode, trainers)
        if mode.name != "sync":
            loop.rest()  # gradients in flight would change rows between the two
        found, wanted = loop.evaluate(Loader(source, BATCH)), in_the_driver(made.site, Loader(source, BATCH))
        assert found is not None
        assert found.metrics() == wanted.metrics()
        loop.rest()
        loop.close()
        again = loop.evaluate(Loader(source, BATCH))
        assert again is not None
        assert again.metrics() == in_the_driver(made.site, Loader(source, BATCH)).metrics(), "at rest too"


def test_with_batches_in_progress_an_evaluation_neither_waits_for_them_nor_changes_them(file: Path) -> None:
    state, source = RunState(), ParquetSource(file, schema())
    with cluster(state, 2, 0) as made:
        loop = TrainingLoop(made.site, state, mode=GBA(), facts=RunFacts(2, SAMPLES, 2 * SAMPLES))
        leases = LeaseQueue(batches(12))
        leases.open_epoch()
        for _ in loop.steps(leases, 0):
            assert loop.evaluate(Loader(source, BATCH)) is not None
        loop.rest()
        loop.close()
        assert state.samples == 12 * SAMPLES


def test_beyond_the_kept_pairs_figures_are_within_the_stated_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "PAIRS_MOST", 60)
    monkeypatch.setattr("hotrow.metrics.quantiles.POINTS_MOST", 16)
    monkeypatch.setattr(error_sketch, "PAIRS_MOST", 60)
    for label, task in (("y", "classification"), ("price", "regression")):
        source = ParquetSource(file, schema(label))
        with cluster(RunState(), 2, 0, task=task) as made:  # type: ignore[arg-type]
            found = made.site.evaluate(Loader(source, BATCH))
            assert found is not None
            wanted = in_the_driver(made.site, Loader(source, BATCH), task).metrics()  # type: ignore[arg-type]
            metrics = found.metrics()
            assert list(metrics) == list(wanted)
            if task == "classification":
                assert 0 < found.auc_error < 1
                assert metrics.pop("auc") == pytest.approx(wanted.pop("auc"), abs=found.auc_error)
            assert metrics == pytest.approx(wanted, rel=1e-12)
            assert found.scores is not None
            assert all(len(points) > 5 for points in found.scores.pictures().values())


def test_an_evaluation_during_a_fit_leaves_its_reading_as_it_was(file: Path) -> None:
    """Also where the fit begins a new reading after it."""
    state, loader = RunState(), Loader(ParquetSource(file, schema()), SAMPLES)
    loader.held = None
    with cluster(state, 2, 0) as made, ExitStack() as stack:
        loader.remote = stack.enter_context(made.site.reading(loader))
        loop = TrainingLoop(made.site, state, mode=GBA(), facts=RunFacts(2, SAMPLES, 2 * SAMPLES))
        leases = LeaseQueue(iter(loader), loader.done)
        leases.open_epoch()
        for number, _ in enumerate(loop.steps(leases, 0)):
            if number in (2, 5):
                assert loop.evaluate(Loader(ParquetSource(file, schema("z")), BATCH)) is not None
            if number == 3:
                name = RoleId("trainer", 2)
                made.start_trainer(name)
                loop.scale(ScaleRequest(name, joins=True))
        loop.rest()
        loop.close()
        assert loader.position().samples == state.samples == ROWS


def test_members_that_change_during_an_evaluation_wait_for_its_end(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, leaves = RunState(), ScaleRequest(RoleId("trainer", 0), joins=False)
    with cluster(state, 2, 0) as made:
        loop = TrainingLoop(made.site, state, mode=GBA(), facts=RunFacts(2, SAMPLES, 2 * SAMPLES))
        evaluate = made.site.evaluate

        def leaving(loader: Loader) -> AnyEvaluator | None:
            loop.scale(leaves)
            assert not leaves.done.done()
            return evaluate(loader)

        monkeypatch.setattr(made.site, "evaluate", leaving)
        found = loop.evaluate(Loader(ParquetSource(file, schema()), BATCH))
        leaves.done.result(20)
        assert found is not None
        assert found.rows == ROWS
        assert made.site.worker_pool.names == [RoleId("trainer", 1)]


def test_what_a_trainer_refuses_is_told_as_the_driver_would(file: Path) -> None:
    with cluster(RunState(), 2, 0) as made:
        with pytest.raises(InputError, match="labels are missing: an evaluation needs them"):
            made.site.evaluate(Loader(ParquetSource(file, schema()), BATCH, labels=False))
        with pytest.raises(InputError, match="labels hold"):
            made.site.evaluate(Loader(ParquetSource(file, schema("price")), BATCH))
        found = made.site.evaluate(Loader(ParquetSource(file, schema()), BATCH))
        assert found is not None, "and the next one goes on"
        assert found.rows == ROWS


class KilledWithBatches(Processes):
    """Trainers end when they have batches that they do not answer."""

    def __init__(self, names: Sequence[RoleId], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.names, look_up = list(names), EvaluationService._look_up
        self.unanswered: list[Any] = []

        def keep(service: EvaluationService, *given: Any) -> None:
            if self.names:
                self.unanswered.append(given)
            else:
                look_up(service, *given)

        monkeypatch.setattr(EvaluationService, "_look_up", keep)

    def lost(self) -> dict[RoleId, str]:
        if len(self.unanswered) == 4:
            self.unanswered.clear()
            self.killed += self.names
            self.names.clear()
        return super().lost()


def test_an_evaluation_begins_again_without_a_lost_trainer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = KilledWithBatches([RoleId("trainer", 1)], monkeypatch)
    with cluster(RunState(), 2, 0, processes=processes) as made:
        found = made.site.evaluate(Loader(ParquetSource(file, schema()), BATCH))
        assert found is not None
        assert found.rows == ROWS
        assert made.site.worker_pool.names == ["trainer 0"]
        assert [loss.name for loss in made.site.worker_pool.take_losses()] == ["trainer 1"]


def test_the_loss_of_all_trainers_fails_the_evaluation_with_a_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = KilledWithBatches([RoleId("trainer", 0), RoleId("trainer", 1)], monkeypatch)
    lost = pytest.raises(RoleLost, match="trainer 1 is gone: it was killed")
    with cluster(RunState(), 2, 0, processes=processes) as made, lost:
        loop = TrainingLoop(made.site, RunState(), mode=GBA(), facts=RunFacts(2, SAMPLES, 2 * SAMPLES))
        loop.evaluate(Loader(ParquetSource(file, schema()), BATCH))


def test_trainers_that_are_lost_while_an_evaluation_is_prepared_are_not_waited_for(file: Path) -> None:
    processes = Processes()
    with cluster(RunState(), 2, 0, processes=processes) as made:
        loader = Loader(ParquetSource(file, schema()), BATCH)
        with made.site._reading.prepared_for_evaluation(loader) as reading:
            assert reading is not None
            processes.killed += made.site.worker_pool.names
            made.site._roles.check_alive()
            evaluation = ClusterEvaluation(made.site._roles, BeginEvaluation(1, 0))
            with pytest.raises(WorkersLost, match="no trainer is left that could evaluate"):
                evaluation.run(loader, reading, [])


class Replacement:
    """Starts one trainer in a thread, as a run does."""

    def __init__(self, made: Cluster, loop: TrainingLoop, number: int) -> None:
        self._made, self._loop, self._name = made, loop, RoleId("trainer", number)
        self._thread = threading.Thread(target=self._run)
        self._started = False

    @property
    def pending(self) -> bool:
        return self._thread.is_alive()

    def replace(self, name: RoleId) -> None:
        if not self._started:
            self._started = True
            self._thread.start()

    def _run(self) -> None:
        self._made.start_trainer(self._name)
        joins = ScaleRequest(self._name, joins=True)
        self._loop.scale(joins)
        joins.done.result(20)


@pytest.mark.parametrize(
    ("mode", "is_open", "trainers"),
    [(GBA(), False, 2), (GBA(), True, 2), (Hybrid(), False, 1), (Hybrid(), True, 1), (Sync(look_ahead=1), True, 1)],
    ids=["gba at rest", "gba", "hybrid at rest", "hybrid", "sync with look-ahead"],
)
def test_an_evaluation_that_lost_all_trainers_begins_again_with_the_next_one(
    file: Path, mode: Mode, is_open: bool, trainers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An open mode goes on too. Its dense parameters are on the shards, with the driver at rest, or in a checkpoint."""
    state, source = RunState(), ParquetSource(file, schema())
    processes = Processes()
    with cluster(state, trainers, 0, processes=processes) as made:
        loop = trained(made, state, mode, trainers)
        loop.replacements["trainer"] = Replacement(made, loop, trainers)
        leases = loop._active.leases if loop._active is not None else None
        assert leases is not None
        loop.rest()
        if mode.name == "hybrid":
            content = checkpoint.Saved({"step": state.step, "samples": state.samples}, None, {})
            checkpoint.save(tmp_path, made.site._spec.model, made.site.optimizer, made.site.tables.tiers, content)
            monkeypatch.setattr(state, "last_checkpoint", lambda: SavedRows(str(tmp_path), state.step, state.samples))
        if not is_open:
            loop.close()
        wanted = in_the_driver(made.site, Loader(source, BATCH)).metrics()
        begin, killed = ClusterEvaluation.run, list(made.site.worker_pool.names)

        def kill_all(*given: Any) -> AnyEvaluator:
            if killed:
                processes.killed += killed
                killed.clear()
            return begin(*given)

        monkeypatch.setattr(ClusterEvaluation, "run", kill_all)
        found = loop.evaluate(Loader(source, BATCH))
        assert found is not None
        assert found.metrics() == wanted
        assert made.site.worker_pool.names == [RoleId("trainer", trainers)]
        for _ in loop.steps(leases, state.step):
            pass
        loop.rest()
        loop.close()
        assert state.samples == 12 * SAMPLES
        counted = loop.statistics.counts
        assert counted["trainers_lost"] == trainers
        assert counted.get("dense_steps_lost", 0) == 0, "nothing was trained since the state that was left"


def test_the_loss_of_all_trainers_at_rest_is_survived_by_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, processes = RunState(), Processes()
    with cluster(state, 1, 0, processes=processes) as made:
        loop = trained(made, state, Sync(look_ahead=0), 1)
        loop.replacements["trainer"] = Replacement(made, loop, 1)
        content = checkpoint.Saved({"step": 0, "samples": 0}, None, {})
        checkpoint.save(tmp_path, made.site._spec.model, made.site.optimizer, made.site.tables.tiers, content)
        monkeypatch.setattr(state, "last_checkpoint", lambda: SavedRows(str(tmp_path), 0, 0))
        active = loop._active
        assert active is not None
        rest = active.performer.parameters.rest

        def kill_first() -> Any:
            processes.killed.append(RoleId("trainer", 0))
            made.roles.check_alive()
            monkeypatch.setattr(active.performer.parameters, "rest", rest)
            return rest()

        monkeypatch.setattr(active.performer.parameters, "rest", kill_first)
        loop.rest()
        step = state.step
        loop.close()
        assert made.site.worker_pool.names == [RoleId("trainer", 1)]
        assert loop.statistics.counts["dense_steps_lost"] == step


def test_where_trainers_with_the_furthest_state_are_lost_those_a_step_behind_give_theirs() -> None:
    """They are lost between the cut of a step and the fetch of the dense state."""
    state, processes, names = RunState(), Processes(), [RoleId("trainer", number) for number in range(2)]
    with cluster(state, 2, 0, processes=processes) as made:
        loop = trained(made, state, GBA(), 2)
        opened = made.site._open
        assert opened is not None
        opened.executor.cut_step = CutDecision((names[1],), 1, 0, behind=(names[0],))
        processes.killed.append(names[1])
        made.roles.check_alive()
        given, _ = made.site._dense.given_by_trainer(opened, optimizer=False)
        assert given
        assert opened.executor.cut_step == CutDecision((names[0],), 1, 0)
        assert opened.parameters._undone["dense_steps_lost"] == 1
        opened.executor.cut_step = None
        loop.rest()
        loop.close()


def test_where_all_roles_that_read_are_lost_the_sentence_says_so(file: Path) -> None:
    loader = Loader(ParquetSource(file, schema()), BATCH)
    with cluster(RunState(), 1, 0) as made, ReadingRoles(made.roles).prepared_for_evaluation(loader) as reading:
        assert reading is not None
        reading.lose(RoleId("trainer", 0))
        tensors, _ = made.site._dense.packed(optimizer=False)
        evaluation = ClusterEvaluation(made.roles, BeginEvaluation(1, 0))
        with pytest.raises(HotrowError, match="no role is left that reads the data of this evaluation"):
            evaluation.run(loader, reading, tensors)


def test_sources_that_others_cannot_read_are_left_to_the_driver(file: Path) -> None:
    with cluster(RunState(), 1, 0) as made:
        assert made.site.evaluate(Loader(ParquetSource(file, schema(group="user")), BATCH)) is None
        assert made.site.evaluate(Loader(Unshared(file, schema()), BATCH)) is None


class Unshared(ParquetSource):
    """A source whose rows are not in files."""

    def files(self) -> Sequence[Any] | None:  # type: ignore[override]
        return None
