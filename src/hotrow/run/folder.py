"""The folder that a run leaves: config, machine, event log, TensorBoard, pictures' data, tables, checkpoint, report."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow import checkpoint
from hotrow.client.base import TableCollection
from hotrow.data.source import Trouble
from hotrow.disk import part_of, write_text
from hotrow.errors import ConfigError, FileError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.obs.events import FILE as EVENTS
from hotrow.obs.events import EventLog, read_events
from hotrow.obs.machine import machine
from hotrow.obs.names import ALL, MODE_COUNTS, STALENESS, series
from hotrow.obs.report import FILE as PAGE
from hotrow.obs.report import write_report
from hotrow.obs.tensorboard import TensorBoard
from hotrow.run.cluster_file import ClusterFile
from hotrow.run.skew import table_pictures
from hotrow.staleness import Statistics
from hotrow.store.rows import DISK_FIGURES, Stats
from hotrow.trainer.reports import Evaluated, Progress, Remark, Report, Switched, TrainingEnded
from hotrow.trainer.saving import Saving

if TYPE_CHECKING:
    from hotrow.obs.prometheus import MetricsServer

CONFIG, SCHEMA, CHECKPOINT, BEST = "config.toml", "schema.json", "checkpoint", "best"
MACHINE, TABLES, EVALUATION = "machine.json", "tables.json", "evaluation.json"
WRITTEN = (CONFIG, SCHEMA, MACHINE, TABLES, EVALUATION, PAGE)  # files that are written beside their place first
MALFORMED_TOLD = 20


def free_folder(parent: Path, name: str) -> Path:
    """parent/name, or the first of name-2, name-3, ... that is not there: a run never writes over another."""
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ConfigError(f"run.folder={str(parent)!r}: cannot be made ({error}): name another") from None
        else:
            return folder


def discard_unfinished(folder: Path) -> None:
    """Remove what a run that died while it wrote has left. Files of other commands (`hotrow predict`) stay."""
    for name in (CHECKPOINT, BEST):
        checkpoint.discard_unfinished(folder / name)
    for name in WRITTEN:
        part_of(folder / name).unlink(missing_ok=True)


def trained_before(folder: Path) -> int:
    """The samples that a run had trained, by the last progress event of its log."""
    path = folder / EVENTS
    events = read_events(path).events if path.is_file() else []
    counts = [event.get("samples") for event in events if event["kind"] == "progress"]
    return max((count for count in counts if isinstance(count, int)), default=0)


class RunFolder:
    """Writes the reports of a run to its folder."""

    def __init__(
        self, path: Path, *, tensorboard: bool, metrics_port: int = 0, samples: int = 0, step: int = 0
    ) -> None:
        self.path = path
        self.pictures: dict[str, Any] = self._known_pictures()
        self.cluster = ClusterFile(path)
        self._events = EventLog(path)
        self._board = TensorBoard(path / "tensorboard") if tensorboard else None
        self._malformed = 0
        self._faults: list[tuple[Path, FileError]] = []  # of other files
        self._told: set[Path] = set()  # files with a reported error
        self._samples, self._step = samples, step  # in the last progress report
        self._metrics: MetricsServer | None = None
        try:
            self._serve_metrics(metrics_port)
        except ConfigError:
            self.close()
            raise

    def settings(self, config: str, schema: str) -> None:
        """Write down the settings of what is trained."""
        write_text(self.path / SCHEMA, schema, "the schema")
        write_text(self.path / CONFIG, config, "the config")

    def start(self, **about: Any) -> None:
        """Write down that the run begins or is resumed; FileError where its folder cannot be written."""
        self._write_json(MACHINE, machine())
        self._events.write("start", **about)
        if (fault := self._events.fault) is not None:
            raise fault

    def failed(self, path: Path, fault: FileError) -> None:
        """Note a file that could not be written; training continues without it."""
        self._faults.append((path, fault))

    def take_faults(self) -> list[str]:
        """Errors of files that could not be written since the last call, each file once."""
        logs = [(self._events.path, self._events.fault)]
        logs += [] if self._board is None else [(self.path / "tensorboard", self._board.fault)]
        new = [(path, fault) for path, fault in [*logs, *self._faults] if fault is not None and path not in self._told]
        self._told |= {path for path, _ in new}
        self._faults.clear()
        return [str(fault) for _, fault in new]

    def take(self, report: Report, lr: float | None) -> None:
        """One more report."""
        match report:
            case Progress():
                self._progress(report, lr)
            case Evaluated():
                self._evaluated(report)
            case Switched():
                self._add("mode/switches")
                self._events.write("mode", **asdict(report))
            case Remark():
                self._events.write("remark", **asdict(report))
            case TrainingEnded():
                self._add("train/refused_gradients", report.counts.get("refused_gradients", 0))
                self._events.write("end", **asdict(report))

    def tables(self, client: TableCollection, samples: int, loaded: Mapping[str, int]) -> dict[str, Stats]:
        """Write the figures of the tables, and return them; `loaded`: rows by table from checkpoints."""
        found = {name: tier.stats() for name, tier in client.tiers.items()}
        figures = {name: table_stats(client, name, found[name], loaded) for name in found}
        self._events.write("tables", samples=samples, tables=figures)
        for name, stats in figures.items():
            for metric, value in stats.items():
                if f"table/{metric}" in ALL:
                    self._set(f"table/{metric}", value, samples, table=name)
        return found

    def begins_in(self, mode: Mode, facts: RunFacts, trained: dict[str, int], chosen: str) -> None:
        """The first mode of a run, or of its resumption; `chosen` is the setting of the config."""
        batches = {"workers": facts.workers, "local_batch": facts.local_batch, "global_batch": facts.global_batch}
        self._events.write("mode", **trained, before=None, mode=mode.name, sentence=None, chosen=chosen, **batches)

    def statistics(self, statistics: Statistics, samples: int) -> None:
        """Write what happened to all grants, and the staleness of gradients."""
        document = statistics.document()
        self._events.write("statistics", samples=samples, **document)
        for kind in STALENESS:
            self._set("mode/staleness", document[kind]["mean"], samples, of=kind)
            self._set("mode/staleness_largest", document[kind]["largest"], samples, of=kind)
        for name in MODE_COUNTS:
            value = sum(document[name].values()) if isinstance(document[name], dict) else document[name]
            self._set(f"mode/{name}", value, samples)

    def trouble(self, trouble: Trouble) -> None:
        """Lines that could not be read: the first are written out, the others counted."""
        self._add("data/malformed_lines", trouble.malformed - self._malformed)
        for line in trouble.first[min(self._malformed, MALFORMED_TOLD) :]:
            self._events.write("malformed", file=line.file, line=line.line, reason=line.reason, text=line.text)
        self._malformed = trouble.malformed

    def warning(self, text: str) -> None:
        self._add("run/warnings")
        self._events.write("warning", text=text)

    def checkpoint(self, samples: int, path: Path, saving: Saving) -> None:
        """A checkpoint is written."""
        self._add("run/checkpoints")
        manifest = saving.result().manifest
        self._events.write(
            "checkpoint",
            samples=samples,
            path=path.name,
            number=manifest.number,
            content=manifest.kind,
            bytes=manifest.size,
            seconds=saving.seconds,
            pause_s=saving.pause_s,
        )

    def stopped(self, why: str, trained: dict[str, int]) -> None:
        """Write down that the run stopped before its end."""
        self._events.write("end", stopped=why, **trained)

    def describe(self, client: TableCollection, loaded: Mapping[str, int]) -> None:
        """Write down the tables at the end, with how often their rows were updated."""
        pictures = {
            name: table_stats(client, name, tier.stats(), loaded) | table_pictures(tier)
            for name, tier in client.tiers.items()
        }
        self._write_json(TABLES, pictures)

    def finish(self) -> Path:
        """Write report.html."""
        return write_report(self.path)

    def close(self) -> None:
        self.cluster.remove()
        self._events.close()
        if self._board is not None:
            self._board.close()
        if self._metrics is not None:
            self._metrics.close()

    def _progress(self, report: Progress, lr: float | None) -> None:
        fields = {name: value for name, value in asdict(report).items() if name != "lr_scale"}
        self._events.write("progress", lr=lr, **fields)
        samples, steps = report.samples - self._samples, report.step - self._step
        self._add("train/samples", samples)
        self._add("train/steps", steps)
        if self._metrics is not None:
            self._metrics.observe("train/step_ms", 1e3 * samples / report.samples_per_s / max(steps, 1))
        self._samples, self._step = report.samples, report.step
        shown = {"epoch": report.epoch + 1, "loss": report.loss, "auc": report.auc, "lr": lr}
        shown |= {"logloss": report.logloss, "calibration": report.calibration}
        shown |= {"auc_error": None if report.auc is None else report.auc_error}
        shown |= {"samples_per_s": report.samples_per_s, "reading_share": report.reading_share}
        for name, value in shown.items():
            self._set(f"train/{name}", value, report.samples)

    def _evaluated(self, report: Evaluated) -> None:
        self._events.write(
            "evaluation",
            split=report.split,
            samples=report.samples,
            step=report.step,
            epoch=report.epoch,
            day=report.day,
            rows=report.rows,
            metrics=report.metrics,
            auc_error=report.auc_error,
        )
        error = {"auc_error": report.auc_error} if "auc" in report.metrics else {}
        for name, value in {"rows": report.rows, **report.metrics, **error}.items():
            if f"evaluation/{name}" in ALL:
                self._set(f"evaluation/{name}", value, report.samples, split=report.split)
        if report.scores is not None:
            self.pictures[report.split] = {**report.scores.pictures(), "metrics": report.metrics, **error}
            self._try_json(EVALUATION, self.pictures)

    def _serve_metrics(self, port: int) -> None:
        if port:
            from hotrow.obs.prometheus import MetricsServer  # 70 ms to load, and few runs serve metrics

            self._metrics = MetricsServer(port)

    def _add(self, name: str, amount: float = 1) -> None:
        if self._metrics is not None:
            self._metrics.add(name, amount)

    def _set(self, name: str, value: float | None, samples: int, **labels: str) -> None:
        if value is None:
            return
        if self._metrics is not None:
            self._metrics.set(name, value, **labels)
        if self._board is not None:
            self._board.write(samples, {series(name, labels): value})

    def _known_pictures(self) -> dict[str, Any]:
        path = self.path / EVALUATION
        return json.loads(path.read_text()) if path.exists() else {}

    def _try_json(self, name: str, document: Mapping[str, Any]) -> None:
        """A file that the page is drawn from: training does not stop for it."""
        try:
            self._write_json(name, document)
        except FileError as error:
            self.failed(self.path / name, error)

    def _write_json(self, name: str, document: Mapping[str, Any]) -> None:
        write_text(self.path / name, json.dumps(document, indent=1) + "\n", "a file of the run")


def table_stats(client: TableCollection, name: str, stats: Stats, loaded: Mapping[str, int]) -> dict[str, float]:
    """The shown figures of one table. Rows that a checkpoint restored do not count as created."""
    shown = ("rows", "value_bytes", "state_bytes", "bytes", "created", "evicted", "expired", "turned_away")
    figures = {figure: getattr(stats, figure) for figure in shown}
    if client.tiers[name].table.disk is not None:
        figures |= {figure: getattr(stats, figure) for figure in DISK_FIGURES}
    return {"dim": client.tiers[name].dim, **figures, "created": stats.created - loaded.get(name, 0)}
