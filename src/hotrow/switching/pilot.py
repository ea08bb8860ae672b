"""Connects a training loop or a simulation with the controller of mode="auto", and asks it for decisions.

It takes times, numbers of workers and sizes, and gives decisions. The engine keeps its clock and its way to switch:

    pilot.joined(worker), pilot.ended(worker), pilot.lost(worker)
    pilot.finished(Observation(...))  # before the step of the batch closes
    pilot.stepped(time_s)
    decision = pilot.decide(time_s)  # None: nothing is to be done
    if decision is not None and decision.switch: ...  # switch to rule.mode(decision.mode), then pilot.started
"""

from dataclasses import dataclass

from hotrow.switching.auto import Auto
from hotrow.switching.controller import Controller, Observation
from hotrow.switching.decision import Decision
from hotrow.switching.prediction import Costs, ModeName


@dataclass(slots=True)
class Pilot:
    """One run under a controller. It begins in Sync."""

    controller: Controller
    every_s: float = 0.0  # the controller is asked this long after the last time, or later
    asked_s: float = float("-inf")
    changing: bool = False  # a switch is decided, and its mode has not begun
    stays: int = 0  # times that the controller was asked and left everything as it was

    @classmethod
    def of(cls, rule: Auto, parts: int, costs: Costs | None = None, *, every_s: float = 0.0) -> "Pilot":
        """By a rule; `parts`: local batches in a global one; `costs`: of the modes, where they are known beforehand."""
        return cls(Controller(rule, costs, parts), every_s)

    def started(self, time_s: float, mode: ModeName) -> None:
        """A mode begins to work."""
        self.controller.started(time_s, mode)
        self.asked_s, self.changing = time_s, False

    def joined(self, worker: int) -> None:
        """A worker is there, for the first time or again."""
        self.controller.joined(worker)

    def ended(self, worker: int) -> None:
        """A worker has no more data. It may join again, and is as quick as it was."""
        self.controller.ended(worker)

    def lost(self, worker: int) -> None:
        """A worker is gone."""
        self.controller.lost(worker)

    def finished(self, seen: Observation) -> None:
        """A batch is finished; the step that it is part of is not closed yet."""
        self.controller.observe(seen)

    def stepped(self, time_s: float) -> None:
        """A global step closed."""
        self.controller.stepped(time_s)

    def decide(self, time_s: float) -> Decision | None:
        """To be in another mode, or advice to; None while a switch is on its way, too."""
        if self.changing or time_s - self.asked_s < self.every_s:
            return None
        self.asked_s = time_s
        decision = self.controller.decide(time_s, self.controller.mode)
        if decision.mode == self.controller.mode:
            self.stays += 1
            return None
        self.changing = decision.switch
        return decision
