"""A net under tests whose threads or processes wait for each other. A conftest imports it for all tests beside it."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

__all__ = ["nobody_hangs"]


@pytest.fixture(autouse=True)
def nobody_hangs() -> Iterator[None]:
    """A safety net and no promise of speed: a deadlock fails here instead of stopping everything."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("they wait for each other for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 300, 5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
