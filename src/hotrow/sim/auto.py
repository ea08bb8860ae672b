"""`auto` in virtual time: a controller that observes a cluster and switches its mode."""

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
    """Observes every batch and step of one cluster. It begins in Sync."""

    def __init__(self, rule: Auto, config: ClusterConfig, *, dense_bytes: int = 0) -> None:
        self.rule = rule
        self.decisions: list[AutoDecision] = []
        self._pilot = Pilot.of(rule, config.facts.parts, _costs(config, dense_bytes))
        self._config = config
        self._cluster: SimCluster | None = None

    @property
    def stays(self) -> int:
        """Decisions to change nothing."""
        return self._pilot.stays

    def cluster(self, *, watchers: Sequence[Any] = (), **settings: Any) -> SimCluster:
        """The cluster that it controls; settings as of `SimCluster`."""
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
        """A mode starts."""
        self._pilot.started(time_s, "gba" if isinstance(mode, GBA) else "sync")

    def cut(self, time_s: float) -> None:
        """No effect: a mode starts next."""

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """Pass joins and losses to the controller."""
        match event:
            case Joined(worker):
                self._pilot.joined(worker)
            case Lost(worker):
                self._pilot.lost(worker)
            case Ended(worker):
                self._pilot.ended(worker)

    def stepped(self, time_s: float, step: int) -> None:
        """A step closed: decide."""
        assert self._cluster is not None
        self._pilot.stepped(time_s)
        decision = self._pilot.decide(time_s)
        if decision is None:
            return
        self.decisions.append(AutoDecision(time_s, step, decision.mode, decision.switch, decision.sentence))
        if decision.switch:
            self._cluster.switch(self.rule.mode(decision.mode))


def _costs(config: ClusterConfig, dense_bytes: int) -> Costs:
    """The expected costs before anything is measured: the dense traffic of both modes."""
    network = config.network
    message_s = network.message_s(dense_bytes) - network.message_s(0)  # rows share the message and its latency
    return Costs(sync_step_s=network.all_reduce_s(config.workers, dense_bytes), gba_batch_s=2 * message_s)
