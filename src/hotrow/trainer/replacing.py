"""Trainers and loaders in place of lost ones: started in a thread, training does not wait; and not without end."""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from hotrow.errors import HotrowError
from hotrow.runtime import TrainingLoop
from hotrow.runtime.losses import QUIET_STEPS, SavedRows
from hotrow.runtime.settings import Local, Ray
from hotrow.trainer.elastic import ElasticTrainers
from hotrow.trainer.scaling import RoleScaling
from hotrow.types import RoleId

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.runtime.ray.cluster import RayCluster

_log = logging.getLogger("hotrow.trainer")


class RoleReplacement:
    """Replaces lost roles of one kind, at most `most` in a row."""

    def __init__(
        self, start: Callable[[], object], report: Callable[[str], None], step: Callable[[], int], most: int
    ) -> None:
        """`start` starts a role and lets it join; `step`: dense steps so far."""
        self._start, self._report, self._step, self._most = start, report, step, most
        self._in_a_row = 0
        self._last_step = 0
        self._threads: list[threading.Thread] = []

    @property
    def pending(self) -> bool:
        """Whether a role is being started."""
        self._threads = [each for each in self._threads if each.is_alive()]
        return bool(self._threads)

    def replace(self, name: RoleId) -> None:
        """Start a role in place of a lost one, if there were not too many in a row."""
        if self._most == 0:
            return
        step = self._step()
        if step - self._last_step >= QUIET_STEPS:
            self._in_a_row = 0
        self._last_step = step
        self._in_a_row += 1
        if self._in_a_row > self._most:
            lost = f"{self._in_a_row} {name.kind}s were lost with fewer than {QUIET_STEPS} steps"
            self._report(f"{name} is not replaced: {lost} between them (engine.replace_lost={self._most})")
            return
        thread = threading.Thread(target=self._run, args=(name,), name=f"replace {name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, name: str) -> None:
        try:
            self._start()
        except HotrowError as error:
            self._report(f"{name} is not replaced: {error}")
        except Exception as error:  # of Ray, which may be shut down meanwhile
            _log.warning("%s is not replaced: %s: %s", name, type(error).__name__, error)


def replace_lost_roles(
    loop: TrainingLoop,
    scaling: RoleScaling,
    engine: Local | Ray,
    cluster: "RayCluster | None",
    last_checkpoint: Callable[[], SavedRows | None],
    report: Callable[[str], None],
) -> ElasticTrainers | None:
    """Let the loop replace lost roles of a cluster. Returns what changes the number of trainers; None: it is fixed.

    That is a thread, which also replaces lost trainers: close it.
    """
    if not isinstance(engine, Ray) or cluster is None:
        return None

    def step() -> int:
        return loop.state.step

    cluster.shard_restarts.last_checkpoint = last_checkpoint
    loop.replacements["loader"] = RoleReplacement(scaling.join_loader, report, step, engine.replace_lost)
    if cluster.places is None:
        loop.replacements["trainer"] = RoleReplacement(scaling.join_trainer, report, step, engine.replace_lost)
        return None
    elastic = ElasticTrainers(
        scaling,
        cluster.places,
        cluster,
        report,
        step,
        fewest=engine.trainers_fewest,
        most=engine.trainers_most,
        losses_most=engine.replace_lost,
    )
    loop.replacements["trainer"] = elastic
    elastic.start()
    return elastic
