"""Auto in virtual time: a controller that watches a cluster, and changes its mode when it says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotrow.modes import GBA, Mode, Sync
from hotrow.modes.base import Effect, Ended, Event, Joined, Lost, RunFacts
from hotrow.sim.cluster import SimCluster
from hotrow.sim.config import ClusterConfig
from hotrow.switching import Auto, Controller, Costs, ModeName, Observation


@dataclass(frozen=True, slots=True)
class Told:
    """A decision to change, or advice to."""

    time_s: float
    step: int
    mode: ModeName  # the one to be in
    switch: bool  # False: it is advice
    sentence: str


class AutoPilot:
    """Looks at every batch and step of one cluster. It begins in Sync."""

    def __init__(self, rule: Auto, config: ClusterConfig, *, dense_bytes: int = 0) -> None:
        self.rule = rule
        self.told: list[Told] = []
        self.stays = 0  # decisions to leave everything as it is
        self._controller = Controller(rule, _costs(config, dense_bytes), config.facts.parts)
        self._config = config
        self._cluster: SimCluster | None = None
        self._changing = False  # a switch was asked for, and drains

    def cluster(self, *, watchers: Sequence[Any] = (), **settings: Any) -> SimCluster:
        """The cluster it drives; settings as `SimCluster` takes them."""
        self._cluster = SimCluster(
            Sync(),
            self._config,
            watchers=(*watchers, self),
            on_batch=self.observe,
            on_step=self.stepped,
            **settings,
        )
        return self._cluster

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """A mode begins to work."""
        self._changing = False
        self._controller.started(time_s, _name(mode))

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """Who comes and who goes."""
        match event:
            case Joined(worker):
                self._controller.joined(worker)
            case Lost(worker) | Ended(worker):
                self._controller.lost(worker)

    def observe(self, seen: Observation) -> None:
        """A batch is finished."""
        self._controller.observe(seen)

    def stepped(self, time_s: float, step: int) -> None:
        """A step closed: the time to decide."""
        controller, cluster = self._controller, self._cluster
        assert cluster is not None
        controller.stepped(time_s)
        if self._changing:
            return
        decision = controller.decide(time_s, controller.mode)
        if decision.mode == controller.mode:
            self.stays += 1
            return
        self.told.append(Told(time_s, step, decision.mode, decision.switch, decision.sentence))
        if decision.switch:
            self._changing = True
            cluster.switch(GBA(tolerance=self.rule.tolerance) if decision.mode == "gba" else Sync())


def _name(mode: Mode) -> ModeName:
    return "gba" if isinstance(mode, GBA) else "sync"


def _costs(config: ClusterConfig, dense_bytes: int) -> Costs:
    """What is expected before anything is measured: the dense traffic of both modes."""
    network = config.network
    message_s = network.message_s(dense_bytes) - network.message_s(0)  # rows travel with it and pay the latency
    return Costs(sync_step_s=network.all_reduce_s(config.workers, dense_bytes), gba_batch_s=2 * message_s)
