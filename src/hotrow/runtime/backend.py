"""The interface of a backend: where parameters are held and batches are computed."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor
from torch.optim import Optimizer

from hotrow.checkpoint.place import Place
from hotrow.checkpoint.row_loader import RowLoader
from hotrow.checkpoint.saving import TablesCut
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader, RemoteReading, RowReading
from hotrow.metrics.sketch import ScoreSketch
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.clock import RunClock
from hotrow.runtime.executors import Executor
from hotrow.runtime.look_ahead import LookAheadChoice
from hotrow.runtime.losses import RoleLoss
from hotrow.server.replicas import Parameters
from hotrow.types import RoleId
from hotrow.worker.evaluators import AnyEvaluator


class WorkerPool(Protocol):
    """Workers that join and leave, by name."""

    @property
    def names(self) -> Sequence[RoleId]:
        """All workers. A mode numbers them in this order when it opens."""

    def is_lost(self, name: RoleId) -> bool:
        """Whether a worker ended that was started: its loss is reported, and it cannot join."""

    def admit(self, name: RoleId) -> None:
        """Admit a worker that was started and waits."""

    def start_worker(self, name: RoleId, worker: int, step: int) -> None:
        """Start the active mode, after `step` steps, on one more worker."""

    def stop_worker(self, name: RoleId) -> Future[None]:
        """Stop a worker that holds no batch."""

    def take_losses(self) -> Sequence[RoleLoss]:
        """Workers, and roles that they depend on, that were lost since the last call."""

    def check_workers(self) -> None:
        """RoleLost where no worker is left."""


class Backend(Protocol):
    """This process, or a cluster."""

    @property
    def worker_pool(self) -> WorkerPool | None:
        """None where workers neither join nor leave."""

    @property
    def optimizer(self) -> Optimizer | None:
        """The dense optimizer; None where the model has no parameters."""

    def check_mode(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where the backend does not support a mode."""

    def look_ahead_choice(self, mode: Mode, facts: RunFacts) -> LookAheadChoice | None:
        """The measurement that decides on the look-ahead of a mode; None: there is nothing to decide."""

    def newest_grant(self) -> int:
        """The largest grant number that is known here; a run continues from it."""

    def attached_samples(self) -> int:
        """Samples that rows in attached segments were last told of, down to a tick of the tables' clock."""

    def check_consistent(self) -> None:
        """InputError where a fault has left rows and dense parameters of different steps."""

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[Parameters, Executor]:
        """Start a mode. It ends when its executor is closed."""

    def track_changes(self) -> None:
        """From the next cut on, cuts of changes are possible."""

    def begin_cut(self, place: Place, *, delta: bool) -> TablesCut:
        """The rows of this moment, at rest, for a checkpoint in a folder; with `delta` those that changed.

        InputError where a table does not know all that changed since the cut before.
        """

    def check_alive(self) -> None:
        """Handle the losses of roles, in the thread of the training loop; RoleLost where one ends the run."""

    def row_loader(self) -> RowLoader:
        """What puts the rows of a checkpoint into the tables, at rest."""

    def take_scores(self) -> ScoreSketch | None:
        """Scores of the batches that workers computed since the last call; None where outputs come with their steps."""

    @property
    def row_prefetch(self) -> RowReading | None:
        """Reads rows of batches that were read ahead from disk; None where they are in memory."""

    def reading(self, loader: Loader) -> AbstractContextManager[RemoteReading | None]:
        """Prepare other processes to read a loader's data for a fit; None where this process has to."""

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is created or changed."""

    def evaluate(self, loader: Loader) -> AnyEvaluator | None:
        """Let the workers predict all batches of a loader; None where this process has to."""
