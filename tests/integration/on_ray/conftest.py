"""One Ray for all tests here: starting it takes seconds, and so does every actor."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

HERE = Path(__file__).parent
LONG_S = 120  # nothing here waits that long, even where a role is lost
# Ray keeps child processes and log files until its driver exits, and says so when they are collected.
OF_RAY = (
    "ignore:Tip. In future versions of Ray:FutureWarning",
    "ignore:unclosed file:ResourceWarning",
    "ignore:subprocess .* is still running:ResourceWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.ray)
            for known in OF_RAY:
                item.add_marker(pytest.mark.filterwarnings(known))


@pytest.fixture(autouse=True)
def nobody_hangs() -> Iterator[None]:
    """A safety net and no promise of speed: a deadlock fails here instead of stopping everything."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("the roles wait for each other for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 300, 5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def one_ray() -> Iterator[None]:
    """Room for two small clusters. Ray itself listens on loopback; what roles say to each other has its own key."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_worker_niceness", "0")  # else whatever runs beside it starves them
        patch.setenv("PYTHONPATH", str(HERE.parents[1]), prepend=os.pathsep)  # where actors find the model
        ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()
