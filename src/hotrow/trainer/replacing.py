"""Trainers in place of lost ones: started in a thread, so that training does not wait, and not without end."""

import logging
import threading
from collections.abc import Callable

from hotrow.errors import HotrowError
from hotrow.runtime.losses import QUIET_STEPS

_log = logging.getLogger("hotrow.trainer")


class TrainerReplacement:
    """Replaces lost trainers, at most `most` in a row."""

    def __init__(
        self, start: Callable[[], object], report: Callable[[str], None], step: Callable[[], int], most: int
    ) -> None:
        """`start` starts a trainer and lets it join; `step`: dense steps so far."""
        self._start, self._report, self._step, self._most = start, report, step, most
        self._in_a_row = 0
        self._last_step = 0
        self._threads: list[threading.Thread] = []

    @property
    def pending(self) -> bool:
        """Whether a trainer is being started."""
        self._threads = [each for each in self._threads if each.is_alive()]
        return bool(self._threads)

    def replace(self, name: str) -> None:
        """Start a trainer in place of a lost one, if there were not too many in a row."""
        if self._most == 0:
            return
        step = self._step()
        if step - self._last_step >= QUIET_STEPS:
            self._in_a_row = 0
        self._last_step = step
        self._in_a_row += 1
        if self._in_a_row > self._most:
            message = f"{name} is not replaced: {self._in_a_row} trainers were lost with fewer than {QUIET_STEPS} steps"
            self._report(f"{message} between them (engine.replace_lost={self._most})")
            return
        thread = threading.Thread(target=self._run, args=(name,), name=f"replace {name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, name: str) -> None:
        try:
            self._start()
        except HotrowError as error:
            self._report(f"{name} is not replaced: {error}")
        except Exception as error:  # of Ray, which may be shut down meanwhile
            _log.warning("%s is not replaced: %s: %s", name, type(error).__name__, error)
