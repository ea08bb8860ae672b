"""Runs a simulation: each mode on the same data and random draws, with progress reports."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any

from hotrow.data.batch import concatenated
from hotrow.errors import ConfigError
from hotrow.sim import Batches, CountingWork, SimCluster, SimResult
from hotrow.sim.auto import AutoPilot
from hotrow.sim.study.calibrate import Compute, LoopbackWire, measured_compute, measured_wire
from hotrow.sim.study.config import SimulationConfig
from hotrow.sim.study.outcome import Notes, Outcome
from hotrow.sim.study.sections import Switch
from hotrow.sim.study.work import BLOCK, StudyRows, TrainedWork, batch_trainer
from hotrow.sizes import MOST
from hotrow.switching import Auto

PIECES = 200  # progress reports of a run
LANES_PER_WORKER, LANES_MOST = 400, 200_000  # intervals that a picture can choose from


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Measurements of this machine, as settings that give the same cluster again without measuring."""

    settings: dict[str, float | int | bool]  # "cluster.speeds.sample_s" and so on


@dataclass(frozen=True, slots=True)
class ModeProgress:
    """The progress of a mode."""

    label: str
    place: int  # among the modes, from 1
    seconds: float  # virtual
    samples: int  # applied
    seconds_total: float | None  # at the end, where that is known
    samples_total: int | None


Report = Calibrated | ModeProgress | Outcome


class Simulation:
    """Iterate it for its reports. Finished modes are in `outcomes`."""

    def __init__(self, config: SimulationConfig, labels: Sequence[str] = (), *, pictured: bool = False) -> None:
        unknown = next((label for label in labels if label not in config.modes), None)
        if unknown is not None:
            raise ConfigError(f"mode {unknown!r}: the file has no such label; it has {', '.join(config.modes)}")
        self.config = config
        self.labels = tuple(dict.fromkeys(labels)) or tuple(config.modes)
        self.outcomes: list[Outcome] = []
        self._lanes = LANES_PER_WORKER if pictured else 0
        self._rows = StudyRows(config) if config.run.work == "train" else None

    def __iter__(self) -> Iterator[Report]:
        if self.config.measured:
            self.config, settings = calibrated(self.config, self._rows)
            yield Calibrated(settings)
        for place, label in enumerate(self.labels, 1):
            trained = None if self._rows is None else TrainedWork(self.config, label, self._rows)
            try:
                yield from self._simulate(label, place, trained)
            finally:
                if trained is not None:
                    trained.close()

    def _simulate(self, label: str, place: int, trained: TrainedWork | None) -> Iterator[Report]:
        notes = Notes(steps=bool(self._lanes))
        cluster, pilot = self._cluster(label, trained, notes)
        switches = deque(self.config.modes[label].switches)
        total = self._rows.total if self._rows is not None else self.config.run.samples
        result = cluster.result()
        for result in self._pieces(cluster, switches, total):
            yield ModeProgress(label, place, result.seconds, result.samples_applied, self.config.run.seconds, total)
        outcome = Outcome.of(label, self.config, result, notes, pilot)
        outcome = replace(outcome, switches_left=len(switches))
        if trained is not None and self._rows is not None:
            test = self._rows.test()
            metrics = None if test is None else trained.metrics(test)
            outcome = replace(outcome, metrics=metrics, ids=result.statistics.ids, rows=trained.rows)
        self.outcomes.append(outcome)
        yield outcome

    def _cluster(self, label: str, trained: TrainedWork | None, notes: Notes) -> tuple[SimCluster, AutoPilot | None]:
        run, mode = self.config.run, self.config.modes[label].mode
        cluster = self.config.cluster_of(label)
        cluster = cluster.model_copy(update={"lanes": min(LANES_MOST, self._lanes * cluster.workers)})
        if trained is None:
            dense_bytes = self.config.dense_bytes
            work: Any = CountingWork(dense_bytes, run.row_bytes, run.shared_rows)
            settings = {"data": run.samples or MOST, "work": work, "seed": run.seed}
        else:
            assert self._rows is not None
            work, dense_bytes = trained.work, trained.dense_bytes
            settings = {"data": Batches(self._rows.train()), "work": work, "seed": run.seed}
        watchers = (notes,) if trained is None else (notes, work)
        if isinstance(mode, Auto):
            pilot = AutoPilot(mode, cluster, dense_bytes=dense_bytes)
            return pilot.cluster(watchers=watchers, **settings), pilot
        return SimCluster(mode, cluster, watchers=watchers, **settings), None

    def _pieces(self, cluster: SimCluster, switches: deque[Switch], total: int | None) -> Iterator[SimResult]:
        """Continue until the data or the time ends, or no worker is left."""
        end_s = self.config.run.seconds or inf
        piece_s = end_s / PIECES
        piece = max(1, total // PIECES) if total else cluster.facts.global_batch
        result = cluster.result()
        while not result.finished and result.seconds < end_s:
            while switches and _due(switches[0], result):
                target = self.config.target_of(switches.popleft())
                cluster.switch(target.mode, workers=target.workers, local_batch=target.local_batch)
            until_s, until = min(end_s, result.seconds + piece_s), result.samples_applied + piece
            if switches:
                until_s = min(until_s, inf if switches[0].at_s is None else switches[0].at_s)
                until = min(until, switches[0].at_samples or until)
            before = (result.seconds, result.samples_applied)
            result = cluster.run(until_samples=until, until_s=None if until_s == inf else until_s)
            yield result
            if (result.seconds, result.samples_applied) == before:
                return


def calibrated(
    config: SimulationConfig, rows: StudyRows | None
) -> tuple[SimulationConfig, dict[str, float | int | bool]]:
    """The config with the measured values of this machine, and these alone."""
    found: dict[str, dict[str, float | int]] = {}
    if "speeds" in config.measured:
        assert rows is not None
        compute = _compute(config, rows)
        found["speeds"] = {"batch_s": compute.batch_s, "sample_s": compute.sample_s}
    if "network" in config.measured:
        given = config.cluster.network.model_fields_set
        found["network"] = {name: value for name, value in _network(measured_wire()).items() if name not in given}
    sections = {name: getattr(config.cluster, name).model_copy(update=settings) for name, settings in found.items()}
    cluster = config.cluster.model_copy(update=sections)
    flat: dict[str, float | int | bool] = {f"cluster.{name}.calibrate": False for name in found}
    for name, settings in found.items():
        flat |= {f"cluster.{name}.{field}": value for field, value in settings.items()}
    return config.model_copy(update={"cluster": cluster}), flat


def _compute(config: SimulationConfig, rows: StudyRows) -> Compute:
    """Of a batch of the cluster's size, or of all rows, on a model that is discarded."""
    wanted = config.cluster.local_batch
    blocks = [batch for _, batch in islice(rows.train(), -(-wanted // BLOCK))]
    if not blocks:
        raise ConfigError("cluster.speeds.calibrate=true: the training data hold no rows to measure with")
    trained = TrainedWork(config, next(iter(config.modes)), rows, cached=False)
    try:
        batch = concatenated(blocks)
        return measured_compute(batch_trainer(trained, batch), min(wanted, len(batch)))
    finally:
        trained.close()


def _network(wire: LoopbackWire) -> dict[str, float | int]:
    """All links as those of this machine: one server, and workers beside it."""
    return {
        "latency_s": wire.latency_s,
        "bandwidth": wire.bandwidth,
        "worker_bandwidth": wire.bandwidth,
        "reduce_latency_s": wire.latency_s,
        "reduce_bandwidth": wire.bandwidth,
    }


def _due(switch: Switch, result: SimResult) -> bool:
    if switch.at_s is not None:
        return result.seconds >= switch.at_s
    return result.samples_applied >= (switch.at_samples or 0)
