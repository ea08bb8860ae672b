"""Kernels run on the GPU where there is one, else in Triton's interpreter on CPU tensors."""

import os
from importlib.util import find_spec

import pytest
import torch

collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # the interpreter computes idle lanes in numpy, which warns of their infinities
        if "unit/store/hbm" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))
