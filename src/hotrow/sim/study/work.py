"""The training of a simulated cluster: the rows, model, tables and optimizers of a run, built for every mode."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import count

import torch

from hotrow.cache.modes import cached_tables
from hotrow.client import LocalTables
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.data.config import Data, DataConfig, open_data
from hotrow.data.loader import Loader
from hotrow.data.source import Source
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.errors import ConfigError
from hotrow.models.registry import build as build_model
from hotrow.modes import Sync
from hotrow.modes.base import Apply, GradientPart, Grant, RunFacts
from hotrow.run.build import dense_optimizer, shape_of, tables_of
from hotrow.server.core import ParameterServer
from hotrow.sim.cached_gradients import work_of
from hotrow.sim.cached_tables import SimCachedTables
from hotrow.sim.gradients import RealWork
from hotrow.sim.leases import SimLease
from hotrow.sim.study.config import SimulationConfig
from hotrow.worker.core import Learner
from hotrow.worker.evaluators import AnyEvaluator, Metrics
from hotrow.worker.losses import objective_of, predictions_of

BLOCK = 8192  # samples read at once; leases are cut from them


class StudyRows:
    """The data of a simulation, the same for every mode."""

    def __init__(self, config: SimulationConfig) -> None:
        assert config.data is not None
        self._config = config
        self._data = _opened(config.data)
        self.schema = self._data.schema

    @property
    def total(self) -> int | None:
        """Samples to train on; None: the number is not known."""
        there = self._data.train.rows()
        most = self._config.run.samples
        return most if there is None else min(there, most or there)

    def train(self) -> Iterator[tuple[object, Batch]]:
        """From the first row on, in the order of the data, or shuffled."""
        left = self._config.run.samples
        for lease, batch in self._loader(self._data.train):
            if left is not None and len(batch) >= left:
                yield lease, batch.slice(0, left)
                return
            left = None if left is None else left - len(batch)
            yield lease, batch

    def test(self) -> Iterator[Batch] | None:
        """The test batches; None: there are none."""
        if self._data.test is None:
            return None
        return (batch for _, batch in Loader(self._data.test, BLOCK))

    def _loader(self, source: Source) -> Generator[tuple[object, Batch], None, None]:
        shuffle = getattr(self._config.data, "shuffle", 0)
        loader = Loader(source, BLOCK, shuffle=shuffle, seed=self._config.run.seed)
        for lease, batch in loader:
            loader.done(lease)  # the simulator has leases of its own
            yield lease, batch


class TrainedWork:
    """A model under training, with its tables."""

    def __init__(self, config: SimulationConfig, label: str, rows: StudyRows, *, cached: bool = True) -> None:
        """Without `cached` no worker keeps rows, whatever the tables say."""
        assert config.model is not None
        seed, hyper = config.run.seed, config.hyper_of(label)
        torch.set_num_threads(config.run.threads)
        torch.manual_seed(seed)
        tables = tables_of(rows.schema, config.tables_of(label))
        for name, table in tables.items():
            own: dict[str, object] = {} if "seed" in table.model_fields_set else {"seed": seed}
            own |= {} if hyper.rows is None else {"optimizer": hyper.rows}
            own |= {} if cached else {"cache": None}
            tables[name] = Table(**{each: getattr(table, each) for each in table.model_fields_set} | own)
        model = build_model(config.model.name, shape_of(rows.schema, tables), config.model.settings)
        parameters = [each for each in model.parameters() if each.requires_grad]
        optimizer = dense_optimizer(hyper.dense.optimizer, parameters, hyper.dense.swap) if parameters else None
        make = SimCachedTables if cached_tables(tables) else LocalTables
        self._client: LocalTables = make(tables, threads=config.run.threads)
        self._server = ParameterServer(
            model, self._client, optimizer, average=config.run.embedding_average, clip=hyper.dense.clip
        )
        loss, self._task = objective_of(model, config.model.loss, config.model.task)
        self._predictions = predictions_of(model, loss, self._task)
        self._learner = Learner(model, loss=loss)
        self.work: RealWork = work_of(self._server, self._client, self._learner, config.cluster.shards)
        self.dense_bytes = sum(each.numel() * each.element_size() for each in parameters)

    @property
    def rows(self) -> dict[str, int]:
        """By table."""
        return {name: len(tier) for name, tier in self._client.tiers.items()}

    def metrics(self, batches: Iterator[Batch]) -> Metrics:
        """The metrics of the model on these batches."""
        judge = AnyEvaluator(self._task, self._predictions)
        for batch in batches:
            judge.add(self._learner.predict(batch, self._client.lookup(batch, learn=False)), batch)
        return judge.metrics()

    def close(self) -> None:
        """Release the rows."""
        self._client.close()


def batch_trainer(trained: TrainedWork, batch: Batch) -> Callable[[int], None]:
    """A function that trains on so many samples of a batch, as one worker in Sync does."""
    work, steps = trained.work, count()
    work.started(0.0, Sync(), RunFacts(1, len(batch), len(batch)))

    def train(samples: int) -> None:
        step = next(steps)
        work.pull(Grant(0, step, step), SimLease(step, samples, batch.slice(0, samples)))
        work.compute(Grant(0, step, step))
        work.apply(Apply("both", step, (GradientPart(step, step, step, samples, 1.0),)), samples * (step + 1))

    return train


def _opened(config: DataConfig | SyntheticConfig) -> Data:
    data = open_data(config)
    if isinstance(config, SyntheticConfig):  # days follow each other in one stream; test rows are draws from the last
        test = SyntheticSource(config, "test") if config.test_rows else None
        return replace(data, test=test)
    if data.by_day is not None:
        remedy = "give test files, or a split by rows, by time or by a fraction"
        raise ConfigError(f"data: the split is day by day, and a simulation tests once, at its end: {remedy}")
    return data
