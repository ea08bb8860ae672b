"""One Ray for all tests here: starting it takes seconds, and so does every actor."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Ray keeps child processes and log files until its driver exits, and says so when they are collected.
OF_RAY = (
    "ignore:Tip. In future versions of Ray:FutureWarning",
    "ignore:unclosed file:ResourceWarning",
    "ignore:subprocess .* is still running:ResourceWarning",
)


@pytest.hookimpl(tryfirst=True)  # before `-m ray` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.ray)
            for known in OF_RAY:
                item.add_marker(pytest.mark.filterwarnings(known))


@pytest.fixture(scope="session")
def one_ray() -> Iterator[None]:
    """Room for two small clusters, started as a run without an address starts its own."""
    from hotrow.runtime.ray.own import own_ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE.parents[1]), prepend=os.pathsep)  # where actors find the model
        with own_ray(8, log_to_driver=False):
            yield


@pytest.fixture
def quick_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles that wait for a killed one never stop by themselves: end them after half a second instead of ten."""
    from hotrow.runtime.ray import cluster

    monkeypatch.setattr(cluster, "STOP_S", 0.5)
