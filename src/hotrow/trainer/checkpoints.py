"""The state of a trainer in checkpoints: what is saved, and what a load changes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from hotrow import checkpoint
from hotrow.checkpoint.place import Place
from hotrow.client.base import TableCollection
from hotrow.data.loader import Loader
from hotrow.data.position import Position
from hotrow.errors import ConfigError, InputError
from hotrow.runtime import TrainingLoop
from hotrow.runtime.interrupts import defer_sigint
from hotrow.trainer.saving import BackgroundSaves, Saving
from hotrow.trainer.schedule import EarlyStopping, EarlyStoppingState
from hotrow.trainer.streams import Leases


@dataclass(slots=True, eq=False)
class DataProgress:
    """How far the data are trained, and how early stopping has judged so far."""

    loader: Loader | None = None  # of the fit under way, or the last one
    loaded: Position | None = None  # of a checkpoint, until there is a loader
    watch: EarlyStoppingState = field(default_factory=EarlyStoppingState)

    @property
    def position(self) -> Position | None:
        """The trained part of the data, for a resume."""
        return self.loaded if self.loader is None else self.loader.position()

    def begin(self, stream: Leases, rule: EarlyStopping, best: Path | None, *, resumed: bool) -> EarlyStoppingState:
        """A fit begins; returns how its early stopping has judged so far. `best`: the folder of the best state."""
        self.loader = stream if isinstance(stream, Loader) else None
        before = self.watch if resumed else EarlyStoppingState()
        self.watch = before.under(rule, keep_best=best is None or checkpoint.exists(best))
        return self.watch

    def forget(self) -> None:
        """The next data are different."""
        self.loader = self.loaded = None


class TrainerCheckpoints:
    """Saves and loads parameters, counters and the progress in the data."""

    def __init__(self, model: nn.Module, tables: TableCollection, loop: TrainingLoop, progress: DataProgress) -> None:
        self._model, self._tables, self._loop, self._progress = model, tables, loop, progress
        self._state, self._backend = loop.state, loop.backend
        self.saves = BackgroundSaves(loop.backend)
        self.rows_loaded: dict[str, int] = {}  # by table: the tables count them as created

    @property
    def size(self) -> int:
        """About how many bytes a save would write now."""
        return checkpoint.bytes_of(self._model, self._backend.optimizer, self._tables.tiers)

    def start(self, folder: str | Path, about: dict[str, Any], *, keep: int, delta: bool, slowdown: float) -> Saving:
        """Save the state of this moment in a thread. One checkpoint is written at a time."""
        self.saves.settle()
        self._loop.check_consistent()
        began = time.monotonic()
        self._loop.rest()
        self._loop.check_consistent()  # after a fault there is no rest
        return self.saves.start(
            folder, self._model, self._content(about), keep=keep, delta=delta, slowdown=slowdown, began=began
        )

    def _content(self, about: dict[str, Any]) -> checkpoint.Saved:
        state, mode, position = self._state, self._loop.mode, self._progress.position
        return checkpoint.Saved(
            counters={
                "step": state.step,
                "samples": state.samples,
                "plateau": state.plateau,
                "mode": mode.name,
                **self._progress.watch.counters(),
            },
            position=None if position is None else position.document(),
            about=about,
            mode=mode.model_dump(mode="json"),
        )

    def load(
        self, folder: str | Path | Place, *, strict: bool, map: Mapping[str, str], skip: Sequence[str]
    ) -> Sequence[str]:
        """Replace the state by a saved one; returns sentences about differences."""
        if strict and (map or skip):
            raise ConfigError("load(): map and skip are for a checkpoint that may differ: give strict=False too")
        if self._loop.busy:
            raise InputError(
                "load() while a fit is under way: end it first, or its gradients would change what is loaded"
            )
        self.saves.settle()
        here, changing = (self._model, self._backend.optimizer, self._backend.row_loader()), self._begin_loading
        if strict:
            loaded = checkpoint.load(folder, *here, changing=changing)
        else:
            loaded = checkpoint.load_into(folder, *here, checkpoint.LoadRules(map, skip), changing=changing)
        self._loop.loaded()
        self.saves.loaded(Place.of(folder).uri if strict else None)
        for name, tier in self._tables.tiers.items():
            self.rows_loaded[name] = self.rows_loaded.get(name, 0) + len(tier)
        state, progress, counters, position = self._state, self._progress, loaded.saved.counters, loaded.saved.position
        state.step, state.samples = int(counters["step"]), int(counters["samples"])
        state.plateau = float(counters["plateau"]) if strict else 1.0
        progress.watch = EarlyStoppingState.of(counters) if strict else EarlyStoppingState()
        progress.loader = None
        progress.loaded = None if position is None or not strict else Position.of(position)
        return loaded.lines

    def _begin_loading(self) -> None:
        """Parameters change from now on: those of the last checkpoint of this run are not what a delta builds on."""
        self.saves.loaded(None)
        self._loop.half_loaded()

    def go_back(self, folder: str | Path) -> Sequence[str]:
        """Restore parameters that this run has saved; counts and position stay. Returns what `load` does."""
        state, progress = self._state, self._progress
        step, samples, position, watch = state.step, state.samples, progress.position, progress.watch
        with defer_sigint():
            lines = self.load(folder, strict=True, map={}, skip=())
        progress.loaded, progress.watch = position, watch
        state.step, state.samples = step, samples
        return lines
