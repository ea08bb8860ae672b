"""A private Ray: started for one run, usable by its processes alone, and ended with it."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray._private import ray_constants

from hotrow.errors import HotrowError
from hotrow.runtime.ray.authentication import environment, token_authentication
from hotrow.runtime.ray.failures import first_line
from hotrow.runtime.ray.private_dir import private_dir

LOOPBACK = "127.0.0.1"
NICENESS = "RAY_worker_niceness"  # Ray's default of 15 lets any other process starve the roles


@contextmanager
def own_ray(cpus: int, *, log_to_driver: bool = True) -> Iterator[None]:
    """Start Ray on this machine, with `cpus` CPUs. It listens on loopback and requires a token made for it."""
    niceness = {NICENESS: os.environ.get(NICENESS, "0")}
    with environment(**niceness), token_authentication(), private_dir() as folder:
        try:
            _start(cpus, folder, log_to_driver=log_to_driver)
            yield
        finally:
            ray.shutdown()


def _start(cpus: int, folder: Path, *, log_to_driver: bool) -> None:
    try:
        with _on_loopback():
            ray.init(
                address="local",  # overrides RAY_ADDRESS
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=log_to_driver,
                logging_level=logging.WARNING,
                _temp_dir=str(folder),
                _node_ip_address=LOOPBACK,
            )
    except Exception as error:  # Ray has no exception type for it
        raise HotrowError(f"engine: Ray did not start on this machine: {first_line(str(error))}") from error


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Ray replaces 127.0.0.1 by another address of the host and then listens on all, unless clusters are disabled."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
