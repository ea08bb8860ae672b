"""How fast a thread writes a checkpoint beside training, which it must not slow down by more than a given share.

Two things slow training down: a core that the thread takes from it, and caches and memory that they share. Against the
first the thread has a low priority: where all cores are busy it gets about `slowdown` of one, and all of a core that is
idle. Against the second it rests.
"""

import math
import os
import sys
import threading
import time
from contextlib import suppress

from hotrow.errors import ConfigError

STEP = 1.25  # of the weight of a thread, from one nice value to the next
NICE_MOST = 19
SLOWDOWN_ON_OTHER_CORE = 0.3  # of training, by a thread that writes without a rest: 0.12 to 0.27 was measured
SLICE_S = 0.005  # of work, before a rest


class WritePace:
    """The pace of one thread, which calls `begin` and `rest`; others may call `hurry`."""

    def __init__(self, slowdown: float) -> None:
        """`slowdown`: the share of its time by which writing may delay training; 1: as fast as it can."""
        if not 0 < slowdown <= 1:
            raise ConfigError(f"slowdown={slowdown!r}: must be above 0 and at most 1 (1 writes as fast as it can)")
        self.nice = nice_of(slowdown)
        self.work_share = min(1.0, slowdown / SLOWDOWN_ON_OTHER_CORE)
        self._hurry = threading.Event()
        self._thread = 0
        self._worked = self._began = 0.0  # of the slice: processor time, and time

    def begin(self) -> None:
        """Take the priority."""
        self._thread = threading.get_native_id()
        if self.nice and not self._hurry.is_set():
            _add_nice(self._thread, self.nice)
        self._worked, self._began = time.thread_time(), time.monotonic()

    def rest(self) -> None:
        """After a piece of work: sleep so long that this thread works its share of the time."""
        worked = time.thread_time() - self._worked
        if worked < SLICE_S or self.work_share == 1.0:
            return
        left = worked / self.work_share - (time.monotonic() - self._began)
        if left > 0:
            self._hurry.wait(left)
        self._worked, self._began = time.thread_time(), time.monotonic()

    def hurry(self) -> None:
        """Training waits for it: no more rests, and the usual priority, where the system gives it back."""
        if not self._hurry.is_set():
            self._hurry.set()
            if self.nice and self._thread:
                _add_nice(self._thread, -self.nice)


def nice_of(slowdown: float) -> int:
    """The nice value with which a thread gets at most this share of a core that another one of nice 0 wants too."""
    if slowdown >= 0.5:
        return 0
    return min(NICE_MOST, math.ceil(math.log((1 - slowdown) / slowdown, STEP)))


def _add_nice(thread: int, more: int) -> None:
    """Beside threads of the process's own nice value."""
    if sys.platform == "linux":  # elsewhere it would be that of the process
        with suppress(OSError):  # raising it again needs a permission; the thread may have ended
            os.setpriority(os.PRIO_PROCESS, thread, min(NICE_MOST, os.getpriority(os.PRIO_PROCESS, thread) + more))
