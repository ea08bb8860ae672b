"""One small run for all tests that only look at it."""

from pathlib import Path

import pytest

from small_run import trained, write_data


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(write_data(tmp_path_factory.mktemp("finished")), "run.seed=3")
