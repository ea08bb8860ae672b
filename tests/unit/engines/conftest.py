"""A net under all tests with threads."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest


@pytest.fixture(autouse=True)
def nobody_hangs() -> Iterator[None]:
    """A safety net and no promise of speed: a deadlock fails here instead of stopping everything."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("workers wait for each other for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 300, 5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
