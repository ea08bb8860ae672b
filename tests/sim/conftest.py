"""Options of the simulator's tests. Give them with a path: `pytest tests/sim/test_seeds.py --seed=7`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="replay one seed, and print its trace")
    parser.addoption("--write-golden", action="store_true", help="write the golden traces anew, to be reviewed as text")
