"""The injector of faults: what goes wrong in its thread is told, and does not look like a quiet run."""

import threading
import time
from typing import Any

import pytest

from hotrow.chaos.injection import Injector


class Broken:
    """A run whose cluster cannot be looked at."""

    samples, step = 0, 0

    @property
    def cluster(self) -> Any:
        raise OSError("the cluster does not answer")


def test_an_error_of_the_injecting_thread_ends_the_run() -> None:
    broken: Any = Broken()
    injector = Injector(links=None, tell=lambda _: None, stalled=lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="does not answer"), injector.exposed(broken):
        wait_until_dead()


def wait_until_dead() -> None:
    while any(thread.name == "chaos" and thread.is_alive() for thread in threading.enumerate()):
        time.sleep(0.01)
