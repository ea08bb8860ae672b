"""Look-ups of rows in virtual time: as a whole, or in look-ahead in two parts.

A look-up ahead of the open step reads the rows that the step does not change at once, and the rest when it is applied.
It waits until the look-ups of the open step are known. A lost grant changes the keys of its step, so what was read
early for the next one is discarded, and read again.
"""

from collections.abc import Callable

from hotrow.modes import Mode
from hotrow.modes.base import Apply
from hotrow.server.step_window import StepWindow
from hotrow.sim.clock import Clock
from hotrow.sim.leases import SimLease
from hotrow.sim.tasks import SimTask
from hotrow.sim.traffic import Traffic
from hotrow.sim.work import SimWork


class RowReads:
    """All look-ups of a mode that are not complete. `here` is called when the rows of a batch are at its worker."""

    def __init__(self, clock: Clock, traffic: Traffic, work: SimWork, here: Callable[[SimTask, float], None]) -> None:
        self._clock, self._traffic, self._work, self._here = clock, traffic, work, here
        self._looks_ahead, self._slices = False, 0
        self._window: StepWindow[SimLease] = StepWindow()
        self._dealt: dict[int, set[int]] = {}  # step -> its grants
        self._waiting: dict[int, SimTask] = {}  # by grant: nothing was read yet
        self._go_on = False  # a step was applied
        self._early: dict[int, tuple[SimTask, int, float]] = {}  # by grant: bytes that were read, and when they arrive

    def change(self, mode: Mode, slices: int, step: int) -> None:
        """A mode starts; everything is at rest."""
        self._looks_ahead, self._slices = hasattr(mode, "look_ahead"), slices
        self._window = StepWindow(step)
        self._dealt = {}

    def granted(self, task: SimTask) -> None:
        """A batch was granted; the servers know the grants of a step when all are made."""
        if self._looks_ahead:
            grants = self._dealt.setdefault(task.grant.token, set())
            grants.add(task.grant.grant)
            if len(grants) == self._slices:
                self._window.expect(task.grant.token, grants)

    def read(self, task: SimTask) -> None:
        """The look-up of a batch arrived at the servers."""
        if self._looks_ahead:
            self.settle()  # what the next step needs goes first
            self._window.look_up(task.grant.token, task.grant.grant, task.lease)
            self._waiting[task.grant.grant] = task
            self._read_waiting()
        else:
            self._read_whole(task)

    def applied(self, effect: Apply) -> None:
        """A step was applied to rows."""
        self._window.applied(effect.step)
        self._dealt.pop(effect.step, None)
        self._go_on = bool(self._early or self._waiting)

    def settle(self) -> None:
        """All effects of an event are performed: read what a step that was applied has kept waiting."""
        if not self._go_on:
            return
        self._go_on = False
        for grant in [grant for grant, (task, _, _) in self._early.items() if self._is_whole(task)]:
            self._read_rest(*self._early.pop(grant))
        self._read_waiting()

    def dropped(self, task: SimTask) -> None:
        """A grant was given up."""
        if not self._looks_ahead:
            return
        grant, step = task.grant.grant, task.grant.token
        self._waiting.pop(grant, None)
        self._early.pop(grant, None)
        self._dealt.get(step, set()).discard(grant)
        self._window.drop(grant)
        for other in [each for each, (held, _, _) in self._early.items() if held.grant.token == step + 1]:
            self._waiting[other] = self._early.pop(other)[0]

    def _is_whole(self, task: SimTask) -> bool:
        return self._window.reading(task.grant.token) == "whole"

    def _read_waiting(self) -> None:
        for grant, task in list(self._waiting.items()):
            match self._window.reading(task.grant.token):
                case "whole":
                    del self._waiting[grant]
                    self._read_whole(task)
                case "early":
                    del self._waiting[grant]
                    in_hand = self._window.in_hand(task.grant.token - 1)
                    size = self._work.pull_early(task.grant, task.lease, in_hand)
                    self._early[grant] = (task, size, self._arrival_s(size))

    def _read_whole(self, task: SimTask) -> None:
        task.wire = self._work.pull(task.grant, task.lease)
        self._here(task, self._arrival_s(task.wire.bytes_down))

    def _read_rest(self, task: SimTask, early_bytes: int, early_s: float) -> None:
        task.wire = self._work.pull(task.grant, task.lease, rest=True)
        self._here(task, max(early_s, self._arrival_s(task.wire.bytes_down - early_bytes)))

    def _arrival_s(self, size: int) -> float:
        return self._clock.now_s if self._traffic.takes_no_time else self._traffic.down_s(size)
