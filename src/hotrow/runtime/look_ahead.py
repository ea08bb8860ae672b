"""Whether a step of look-ahead pays, decided from the times of steps: pure.

Look-ahead pays where a core is idle or the network is on a GPU. Where the network fills all cores, it costs. So both
ways are measured in turn: stretches of steps in line and ahead, in an order in which a slow drift (a table that grows,
a machine that warms up) weighs on both alike. The medians decide, and a gain below the margin does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from hotrow.config import Table
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts

STRETCHES = (0, 1, 1, 0, 0, 1, 1, 0)
WARM_STEPS = 8  # at the start: everything is slower then
SKIPPED_STEPS = 1  # of each stretch: the first step after a change is neither
STRETCH_S = 0.4
STRETCH_STEPS = (3, 20)  # at least and at most, without the skipped ones
MARGIN = 0.02


def expiry_fault(tables: Mapping[str, Table], facts: RunFacts) -> str | None:
    """Why rows that expire soon keep a run from looking ahead, and what to change; None: they do not."""
    least = 2 * facts.global_batch
    for name, table in tables.items():
        if table.expiry is not None and table.expiry < least:
            reason = f"rows of table {name!r} could expire between their lookup and their update"
            return f"{reason}; give it an expiry of {least:,} samples or more"
    return None


@dataclass(slots=True)
class LookAheadChoice:
    """Measures steps in line and a step ahead, and then stays with what is faster.

    Example:
        >>> from hotrow.runtime.look_ahead import LookAheadChoice
        >>> choice, now = LookAheadChoice(), 0.0
        >>> while choice.sentence is None:
        ...     now += 0.1 if choice.steps == 0 else 0.07
        ...     _ = choice.stepped(now)
        >>> choice.steps
        1
    """

    steps: int = 0  # of look-ahead, now
    sentence: str | None = None  # the decision, once there is one
    _last_s: float | None = None
    _warm: list[float] = field(default_factory=list)
    _stretch: int = -1  # -1: warming up
    _left: int = WARM_STEPS  # steps of this stretch
    _skip: int = 0
    _times: dict[int, list[float]] = field(default_factory=lambda: {0: [], 1: []})

    def restart(self) -> None:
        """A pause, or a mode that opened again: the next step begins with it."""
        self._last_s = None

    def stepped(self, now_s: float) -> bool:
        """A step has ended; whether `steps` has changed."""
        last_s, self._last_s = self._last_s, now_s
        if self.sentence is not None or last_s is None:
            return False
        if self._skip:
            self._skip -= 1
            return False
        (self._warm if self._stretch < 0 else self._times[self.steps]).append(now_s - last_s)
        self._left -= 1
        return False if self._left else self._next_stretch()

    def _next_stretch(self) -> bool:
        self._stretch += 1
        before = self.steps
        if self._stretch < len(STRETCHES):
            least, most = STRETCH_STEPS
            self._left = min(most, max(least, ceil(STRETCH_S / max(median(self._warm), 1e-9))))
            self._skip = SKIPPED_STEPS
            self.steps = STRETCHES[self._stretch]
        else:
            self._decide()
        return self.steps != before

    def _decide(self) -> None:
        in_line, ahead = median(self._times[0]), median(self._times[1])
        self.steps = 1 if ahead < in_line * (1 - MARGIN) else 0
        measured = f"a step takes {ahead * 1e3:.3g} ms with it and {in_line * 1e3:.3g} ms without"
        steps = f"medians of {len(self._times[0])} steps each"
        self.sentence = f"look_ahead 'auto' takes {self.steps}: {measured} ({steps})"


class LookAheadChoices:
    """The choices of a run: one for each mode and size of its steps, kept when a mode opens again."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], LookAheadChoice] = {}

    def of(self, mode: Mode, facts: RunFacts) -> LookAheadChoice:
        """The choice for a mode that starts with these facts."""
        key = mode.name, facts.workers, facts.local_batch, facts.global_batch
        return self._made.setdefault(key, LookAheadChoice())
