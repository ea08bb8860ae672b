"""Who says which mode is at work: the user, or a controller that watches the run. Every change becomes a report."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hotrow.engines import Finished, LocalEngine
from hotrow.errors import ConfigError
from hotrow.modes import GBA, MODES, Mode, Sync, mode_of
from hotrow.modes.base import RunFacts
from hotrow.switching import Auto, Controller, Costs, Decision, ModeName, Observation
from hotrow.trainer.reports import Remark, Switched

DECIDE_EVERY_S = 1.0
SHORTEST_S = 1e-9  # a batch takes time, whatever the clock says

Choice: TypeAlias = Mode | Auto | str | Mapping[str, Any]
Place: TypeAlias = Callable[[], tuple[int, int]]  # samples and steps so far


def chosen(value: Choice | None) -> Mode | Auto:
    """A mode or the rule that chooses one, from itself, its name, or a dict with its name and settings."""
    if value is None:
        return Sync()
    if isinstance(value, Mode | Auto):
        return value
    if not isinstance(value, str | Mapping):
        raise ConfigError(f"mode is a {type(value).__name__}: give a mode as hotrow.GBA(), its name, or a dict")
    settings = {"name": value} if isinstance(value, str) else dict(value)
    if settings.get("name") == "auto":
        return Auto(**settings)
    if settings.get("name") not in MODES:
        raise ConfigError(f"mode={value!r}: there is none of this name; there are {', '.join(MODES)}, auto")
    return mode_of(settings)


def first_of(choice: Mode | Auto) -> Mode:
    """What a run begins in."""
    return Sync() if isinstance(choice, Auto) else choice


class Autopilot:
    """Shows a controller the run, and asks it now and then. The engine's watcher."""

    def __init__(self, rule: Auto, facts: RunFacts, clock: Callable[[], float]) -> None:
        self._rule, self._clock = rule, clock
        self._controller = Controller(rule, Costs(sync_step_s=0, gba_batch_s=0), facts.parts)
        for worker in range(facts.workers):
            self._controller.joined(worker)
        self.started("sync")

    def started(self, mode: ModeName) -> None:
        """A mode begins to work."""
        self._controller.started(self._clock(), mode)
        self._asked_s = self._clock()

    def finished(self, batch: Finished, late: int) -> None:
        busy_s, samples = max(batch.busy_s, SHORTEST_S), batch.gradients.samples
        self._controller.observe(Observation(batch.grant.worker, self._clock(), busy_s, samples, late))

    def stepped(self) -> None:
        self._controller.stepped(self._clock())

    def decision(self) -> Decision | None:
        """To be in another mode, if that is right and it is time to ask."""
        now = self._clock()
        if now - self._asked_s < DECIDE_EVERY_S:
            return None
        self._asked_s = now
        controller = self._controller
        if "gba" not in controller.measured:  # in one process both modes pull and push: until it works, as Sync
            cost = controller.present_costs.sync_step_s
            controller.costs = Costs(sync_step_s=cost, gba_batch_s=cost)
        decision = controller.decide(now, controller.mode)
        return None if decision.mode == controller.mode else decision

    @staticmethod
    def remarks(facts: RunFacts) -> list[str]:
        """Where it can choose nothing."""
        if facts.workers == 1:
            return ["auto stays in sync: the modes differ only with two workers or more"]
        if facts.workers > facts.parts:
            idle = f"{facts.workers - facts.parts:,} of {facts.workers:,} workers get no batch there"
            return [f"auto stays in sync: {idle}, so nobody knows how fast they are"]
        return []

    def mode(self, name: ModeName) -> Mode:
        """By name, with the rule's settings."""
        return Sync() if name == "sync" else GBA(tolerance=self._rule.tolerance)


class Steering:
    """Keeps an engine in the mode that is chosen, and what is to be told about it."""

    def __init__(
        self,
        engine: LocalEngine,
        choice: Mode | Auto,
        place: Place,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._engine, self._place, self._clock = engine, place, clock
        self._news: list[Remark | Switched] = []
        self._known: Mode | None = None  # whose remarks were told
        self._unsaid: list[str] = []  # until training begins
        self._pilot: Autopilot | None = None
        self._follow(choice)

    def begin(self) -> None:
        """Training begins: who counts on the global batch hears what the mode makes of it."""
        said, self._unsaid = self._unsaid, []
        self._remark(*said)
        if self._known != self._engine.mode:
            self._known = self._engine.mode
            self._remark(*self._known.remarks(self._engine.facts))

    def switch(self, choice: Choice) -> None:
        """Go on in another mode, or by a controller's choice."""
        wanted = chosen(choice)
        self._go(first_of(wanted), None)
        self._follow(wanted)

    def stepped(self) -> None:
        """After a step: a controller may change the mode, or advise it."""
        decision = None if self._pilot is None else self._pilot.decision()
        if self._pilot is None or decision is None:
            return
        if decision.switch:
            self._go(self._pilot.mode(decision.mode), decision.sentence)
            self._pilot.started(decision.mode)
        else:
            self._remark(decision.sentence)

    def take_news(self) -> list[Remark | Switched]:
        """What is to be told since the last call."""
        news, self._news = self._news, []
        return news

    def _follow(self, choice: Mode | Auto) -> None:
        facts = self._engine.facts
        self._pilot = Autopilot(choice, facts, self._clock) if isinstance(choice, Auto) else None
        self._unsaid = [] if self._pilot is None else self._pilot.remarks(facts)
        self._engine.watcher = self._pilot

    def _go(self, mode: Mode, sentence: str | None) -> None:
        before = self._engine.mode
        if mode == before:
            return
        self._engine.switch(mode)
        self._news.append(Switched(*self._place(), before.name, mode.name, sentence))
        self.begin()

    def _remark(self, *sentences: str) -> None:
        self._news += [Remark(*self._place(), self._engine.mode.name, sentence) for sentence in sentences]
