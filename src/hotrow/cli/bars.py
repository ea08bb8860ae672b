"""Progress of long work on standard error: a bar on a terminal, a plain line every few seconds elsewhere.

No torch is imported here: commands that read checkpoints do without.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from hotrow.cli import formatting
from hotrow.cli.screen import Screen, cell
from hotrow.printable import one_line

MB = 10**6
QUIET_S = 5.0  # between two plain lines
WIDE = 110  # columns of a terminal that fits all digits
STABLE_S, STABLE_REPORTS = 10.0, 3  # after which an estimate of the time left is worth showing


@contextmanager
def waiting(text: str, console: Console | None = None) -> Iterator[None]:
    """Show a text during work without countable parts."""
    where = console or Screen(stderr=True)
    if not where.is_terminal:
        _print(where, text)
        yield
        return
    with where.status(cell(text)):
        yield


def _print(console: Console, text: str) -> None:
    """Print one line; control characters of names from files are escaped."""
    console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)


class Bar:
    """How many rows or samples are done, the speed, and the time left."""

    def __init__(
        self,
        unit: str,
        total: int | None = None,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.unit, self.total = unit, total
        self.console = console or Screen(stderr=True)
        self._live = self.console.is_terminal
        columns = BarColumn(bar_width=10), TextColumn("{task.description}", markup=False)
        self._bar = Progress(*columns, console=self.console, refresh_per_second=4, disable=not self._live)
        self._task = self._bar.add_task("", total=total)
        self._clock = clock
        self._start = clock()
        self._next_line = self._start + QUIET_S
        self.restart_estimate()

    def restart_estimate(self) -> None:
        """Forget the speed so far: other work begins."""
        self._first: tuple[float, int] | None = None  # time and count of the first report
        self._reports = 0

    def __enter__(self) -> Self:
        if self._live:  # else Rich before 15 ends it with an empty line
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bar.update(self._task, visible=False)
            self._bar.stop()

    def rows(self, done: int, total: int | None = None) -> None:
        """So many are done, at the mean speed since the start."""
        self.total = total or self.total
        self.show(done, done / max(self._clock() - self._start, 1e-9))

    def show(self, done: int, per_s: float, *more: str) -> None:
        """So many are done, at this speed."""
        left_s = self._left_s(done)
        if self._live:
            text = formatting.state(self.unit, done, self.total, per_s, *more, left_s=left_s, short=not self._room)
            self._bar.update(self._task, completed=done, total=self.total, description=text)
        elif self._clock() >= self._next_line:
            self._next_line = self._clock() + QUIET_S
            self.line(formatting.state(self.unit, done, self.total, per_s, *more, left_s=left_s))

    def _left_s(self, done: int) -> float | None:
        """Seconds that the rest takes at the mean speed since the first report; None before that speed is stable.

        The time before the first report is left out: imports, the first allocation and the first compilation are in it.
        """
        now = self._clock()
        self._reports += 1
        if self._first is None:
            self._first = now, done
        seconds, more = now - self._first[0], done - self._first[1]
        if self.total is None or seconds < STABLE_S or self._reports <= STABLE_REPORTS or more <= 0:
            return None
        return (self.total - done) * seconds / more

    @property
    def _room(self) -> bool:
        return self._fits(WIDE)

    def _fits(self, columns: int) -> bool:
        return not self._live or self.console.width >= columns

    def line(self, text: str) -> None:
        """Print a line that stays."""
        _print(self.console, text)


class ByteBar(Bar):
    """How many bytes were read or written, in MB."""

    def __init__(self, total: int, **more: Any) -> None:
        super().__init__("MB", -(-total // MB), **more)
        self._bytes = 0

    def add(self, size: int) -> None:
        """So many bytes more are done."""
        self._bytes += size
        self.rows(self._bytes // MB)
