"""Trainers whose number changes with the cluster: a thread asks for places, lets trainers join, and leave in time."""

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Protocol

from hotrow.errors import HotrowError
from hotrow.runtime.elastic import TrainerSupply, decide_scale
from hotrow.runtime.losses import QUIET_STEPS
from hotrow.runtime.membership import ScaleRequest
from hotrow.types import RoleId

TICK_S = 0.5

_log = logging.getLogger("hotrow.trainer")


class Places(Protocol):
    """Places of trainers in a cluster: one at a time is requested."""

    @property
    def requested(self) -> bool:
        """Whether one is looked for."""

    def request(self) -> None:
        """Look for one more."""

    def wait(self, timeout_s: float) -> bool:
        """Whether the requested one is there."""

    def withdraw(self) -> None:
        """Stop looking."""


class Nodes(Protocol):
    """The nodes of a cluster."""

    def draining(self) -> Collection[RoleId]:
        """Roles on nodes that are being drained."""

    def ended_with_node(self, name: RoleId) -> bool:
        """Whether the node of a role has ended."""


class Scaling(Protocol):
    """The trainers that take part."""

    @property
    def trainers(self) -> Collection[RoleId]:
        """Those that take part, or will at the next step."""

    def check_join(self) -> None:
        """Raise where no trainer can join now."""

    def join_trainer(self) -> ScaleRequest:
        """Start one more, which joins at the next step."""

    def leave(self, name: str) -> "Future[None]":
        """Let one leave at the next step."""


class ElasticTrainers:
    """Keeps as many trainers as the cluster has room for, from `fewest` to `most`. Replaces lost ones, too."""

    def __init__(
        self,
        scaling: Scaling,
        places: Places,
        nodes: Nodes,
        report: Callable[[str], None],
        step: Callable[[], int],
        *,
        fewest: int,
        most: int,
        losses_most: int,
    ) -> None:
        """`losses_most`: in a row, on nodes that are alive; after more of them no place is requested for a while."""
        self._scaling, self._places, self._nodes, self._report, self._step = scaling, places, nodes, report, step
        self._fewest, self._most, self._losses_most = fewest, most, losses_most
        self._joining: ScaleRequest | None = None
        self._leaving: dict[RoleId, Future[None]] = {}
        self._refused: set[RoleId] = set()  # trainers that cannot leave a draining node
        self._losses: list[tuple[RoleId | None, int]] = []  # in a row, with their steps; None: one that did not start
        self._gives_up = False
        self._is_short = False  # there are fewer trainers than the fewest
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elastic trainers", daemon=True)

    def start(self) -> None:
        """Begin to ask for places."""
        self._thread.start()

    @property
    def pending(self) -> bool:
        """Whether a run without trainers may wait for one."""
        return self._thread.is_alive() and not self._gives_up

    def replace(self, name: RoleId) -> None:
        """Note a lost trainer: a place for another one is requested."""
        self._losses.append((name, self._step()))

    def close(self) -> None:
        """Ask for nothing more."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(2 * TICK_S)  # a trainer that starts meanwhile is ended with the cluster

    def tick(self) -> None:
        """Do what is to be done now."""
        self._leaving = {name: left for name, left in self._leaving.items() if not left.done()}
        present = [name for name in self._scaling.trainers if name not in self._leaving]
        draining = self._nodes.draining()
        self._gives_up = len(self._losses_in_a_row()) > self._losses_most
        decision = decide_scale(
            TrainerSupply(
                most=self._most,
                present=len(present),
                draining=tuple(name for name in present if name in draining and name not in self._refused),
                requested=self._places.requested or self._is_joining,
                joinable=self._is_joinable(),
                losses=len(self._losses),
                losses_most=self._losses_most,
            )
        )
        for name in decision.leave:
            self._leave(name)
        if decision.request:
            self._places.request()
        if decision.withdraw:
            self._places.withdraw()
        if self._places.requested and self._places.wait(0.0):
            self._join()
        self._report_shortage(len(present))

    @property
    def _is_joining(self) -> bool:
        return self._joining is not None and not self._joining.done.done()

    def _is_joinable(self) -> bool:
        try:
            self._scaling.check_join()
        except HotrowError:  # the mode has enough
            return False
        return True

    def _losses_in_a_row(self) -> list[tuple[RoleId | None, int]]:
        """Without those of nodes that have ended, which says nothing about the next trainer."""
        alive = [each for each in self._losses if each[0] is None or not self._nodes.ended_with_node(each[0])]
        self._losses = alive if alive and self._step() - alive[-1][1] < QUIET_STEPS else []
        return self._losses

    def _join(self) -> None:
        try:
            self._joining = self._scaling.join_trainer()
        except HotrowError as error:
            self._places.withdraw()
            self._losses.append((None, self._step()))
            self._report(f"a trainer could not start: {error}")

    def _leave(self, name: RoleId) -> None:
        try:
            self._leaving[name] = self._scaling.leave(name)
        except HotrowError as error:
            self._refused.add(name)
            self._report(f"the node of {name} is being drained, and it cannot leave: {error}")
        else:
            self._report(f"the node of {name} is being drained: it leaves")

    def _report_shortage(self, present: int) -> None:
        short = present < self._fewest
        if short and not self._is_short:
            waits = "training waits for one" if present == 0 else "training goes on"
            _log.warning("trainers: %d, fewer than engine.trainers asks for (%d): %s", present, self._fewest, waits)
        self._is_short = short

    def _run(self) -> None:
        while not self._closed.wait(TICK_S):
            try:
                self.tick()
            except HotrowError as error:
                self._report(str(error))
            except Exception as error:  # of Ray, which may be shut down meanwhile
                if self._closed.is_set():
                    return
                _log.warning("the number of trainers stays as it is for now: %s: %s", type(error).__name__, error)
