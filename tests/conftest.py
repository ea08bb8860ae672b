"""What all tests share: which marks run here, and the settings that make runs repeatable."""

import os
import shutil
import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from browsers import CHROMIUM_NAMES
from profiles import load_profile

SLOW_TIMEOUT_S = 1_800

load_profile()

# In the background of a shell SIGINT is ignored, and children inherit that. Some tests send one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Triton reads it when a kernel is defined. On a machine with a GPU the same tests run there.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

torch.set_num_threads(1)  # the sums of torch, which some tests compare with, then do not depend on the machine
torch.sparse.check_sparse_tensor_invariants.enable()  # type: ignore[no-untyped-call]  # unset, torch warns


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run also the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = missing_parts(slow=bool(config.getoption("--slow")))
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
        for mark, reason in missing.items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


def missing_parts(*, slow: bool) -> dict[str, str]:
    """For each mark whose tests cannot run here: the reason."""
    reasons = {
        "slow": (slow, "longer than the suite's budget: run with --slow"),
        "ray": (find_spec("ray") is not None, "Ray is not installed"),
        "gpu": (torch.cuda.is_available(), "no CUDA device"),
        "browser": (any(map(shutil.which, CHROMIUM_NAMES)), "no Chromium on PATH"),
    }
    return {mark: reason for mark, (present, reason) in reasons.items() if not present}


@pytest.fixture(scope="session")
def data_dir() -> Callable[[str], Path]:
    """data_dir("movielens_100k"): the folder of a real sample under HOTROW_DATA; skips the test where it is missing."""

    def folder(name: str) -> Path:
        root = os.environ.get("HOTROW_DATA")
        if root is None:
            pytest.skip(f"needs the sample {name}: HOTROW_DATA is not set")
        path = Path(root) / name
        if not path.is_dir():
            pytest.skip(f"needs the sample {name}: it is not in HOTROW_DATA")
        return path

    return folder
