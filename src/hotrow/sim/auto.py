"""Auto in virtual time: a controller that watches a cluster, and changes its mode when it says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotrow.modes import GBA, Mode, Sync
from hotrow.modes.base import Effect, Ended, Event, Joined, Lost, RunFacts
from hotrow.sim.cluster import SimCluster
from hotrow.sim.config import ClusterConfig
from hotrow.switching import Auto, Costs, ModeName, Pilot


@dataclass(frozen=True, slots=True)
class AutoDecision:
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
        self.told: list[AutoDecision] = []
        self._pilot = Pilot.of(rule, config.facts.parts, _costs(config, dense_bytes))
        self._config = config
        self._cluster: SimCluster | None = None

    @property
    def stays(self) -> int:
        """Decisions to leave everything as it is."""
        return self._pilot.stays

    def cluster(self, *, watchers: Sequence[Any] = (), **settings: Any) -> SimCluster:
        """The cluster it drives; settings as `SimCluster` takes them."""
        self._cluster = SimCluster(
            Sync(),
            self._config,
            watchers=(*watchers, self),
            on_batch=self._pilot.finished,
            on_step=self.stepped,
            **settings,
        )
        return self._cluster

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """A mode begins to work."""
        self._pilot.started(time_s, "gba" if isinstance(mode, GBA) else "sync")

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """Who comes and who goes."""
        match event:
            case Joined(worker):
                self._pilot.joined(worker)
            case Lost(worker):
                self._pilot.lost(worker)
            case Ended(worker):
                self._pilot.ended(worker)

    def stepped(self, time_s: float, step: int) -> None:
        """A step closed: the time to decide."""
        assert self._cluster is not None
        self._pilot.stepped(time_s)
        decision = self._pilot.decide(time_s)
        if decision is None:
            return
        self.told.append(AutoDecision(time_s, step, decision.mode, decision.switch, decision.sentence))
        if decision.switch:
            self._cluster.switch(self.rule.mode(decision.mode))


def _costs(config: ClusterConfig, dense_bytes: int) -> Costs:
    """What is expected before anything is measured: the dense traffic of both modes."""
    network = config.network
    message_s = network.message_s(dense_bytes) - network.message_s(0)  # rows travel with it and pay the latency
    return Costs(sync_step_s=network.all_reduce_s(config.workers, dense_bytes), gba_batch_s=2 * message_s)
