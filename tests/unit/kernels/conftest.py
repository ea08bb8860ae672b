"""Kernels run on the GPU where there is one, else in Triton's interpreter on CPU tensors."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # the interpreter computes idle lanes in numpy, which warns of their infinities
        if "unit/kernels" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))
