"""Selects the mode of a run: the user's choice, or that of a controller. Every change becomes a report."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hotrow.errors import ConfigError
from hotrow.modes import MODES, Mode, Sync, mode_of
from hotrow.modes.base import RunFacts
from hotrow.runtime import TrainingLoop
from hotrow.spec import named_settings
from hotrow.switching import Auto, Pilot
from hotrow.trainer.reports import Remark, Switched

DECIDE_EVERY_S = 1.0

Choice: TypeAlias = Mode | Auto | str | Mapping[str, Any]


def parse_mode(value: Choice | None) -> Mode | Auto:
    """A mode or the rule that chooses one, from itself, its name, or a dict with its name and settings."""
    if value is None:
        return Sync()
    if isinstance(value, Mode | Auto):
        return value
    settings = named_settings("mode", value, (*MODES, "auto"), "a mode as hotrow.GBA(), its name, or a dict")
    return Auto(**settings) if settings["name"] == "auto" else mode_of(settings)


def initial_mode(choice: Mode | Auto) -> Mode:
    """What a run begins in."""
    return Sync() if isinstance(choice, Auto) else choice


def remarks_of(choice: Mode | Auto, facts: RunFacts) -> list[str]:
    """Where auto can choose nothing. A mode speaks for itself, when it begins."""
    if not isinstance(choice, Auto):
        return []
    if facts.workers == 1:
        return ["auto stays in sync: the modes differ only with two workers or more"]
    if facts.workers > facts.parts:
        idle = f"{facts.workers - facts.parts:,} of {facts.workers:,} workers get no batch there"
        return [f"auto stays in sync: {idle}, so their speed is unknown"]
    return []


class ModeSelector:
    """Keeps the training loop in the chosen mode, and collects reports about it."""

    def __init__(
        self,
        loop: TrainingLoop,
        choice: Mode | Auto,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._loop = loop
        self._clock = loop.clock if clock is None else clock
        self._news: deque[Remark | Switched] = deque()  # other threads add to it
        self._known: Mode | None = None  # whose remarks were reported
        self._pending_remarks: list[str] = []  # until training begins
        self._pilot: Pilot | None = None  # the observer of the loop, where a controller chooses
        self._follow(choice)

    def begin(self) -> None:
        """Training begins: report what the mode does with the global batch."""
        remarks, self._pending_remarks = self._pending_remarks, []
        self.remark(*remarks)
        if self._known != self._loop.mode:
            self._known = self._loop.mode
            self.remark(*self._known.remarks(self._loop.facts))

    def switch(self, choice: Choice) -> None:
        """Continue in another mode, or by a controller's choice."""
        wanted = parse_mode(choice)
        self._go(initial_mode(wanted), None)
        self._follow(wanted)

    def stepped(self) -> None:
        """After a step: a controller may change the mode, or advise it."""
        decision = None if self._pilot is None else self._pilot.decide(self._clock())
        if self._pilot is None or decision is None:
            return
        if not decision.switch:
            self.remark(decision.sentence)
            return
        try:
            self._go(self._pilot.controller.rule.mode(decision.mode), decision.sentence)
        except ConfigError as refusal:  # a cluster whose workers came and went may have too many, or too few
            self.remark(f"auto stays in {self._loop.mode.name}: {refusal}")
            self._pilot.started(self._clock(), self._pilot.controller.mode)
        else:
            self._pilot.started(self._clock(), decision.mode)

    def take_reports(self) -> list[Remark | Switched]:
        """Reports since the last call."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def _follow(self, choice: Mode | Auto) -> None:
        self._pilot = self._pilot_of(choice) if isinstance(choice, Auto) else None
        self._loop.observe(self._pilot)
        self._pending_remarks = remarks_of(choice, self._loop.facts)

    def _pilot_of(self, rule: Auto) -> Pilot:
        """Costs are not known beforehand: in one process both modes pull and push."""
        pilot = Pilot.of(rule, self._loop.facts.parts, every_s=DECIDE_EVERY_S)
        for worker in self._loop.workers:
            pilot.joined(worker)
        pilot.started(self._clock(), "sync")
        return pilot

    def _go(self, mode: Mode, sentence: str | None) -> None:
        before = self._loop.mode
        if mode == before:
            return
        self._loop.switch(mode)
        self._news.append(Switched(self._loop.state.samples, self._loop.state.step, before.name, mode.name, sentence))
        self.begin()

    def remark(self, *sentences: str) -> None:
        """Report sentences. Thread-safe."""
        for sentence in sentences:
            self._news.append(Remark(self._loop.state.samples, self._loop.state.step, self._loop.mode.name, sentence))
