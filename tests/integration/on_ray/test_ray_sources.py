"""A source on its way to loaders: it is there while it is read, and ends with its driver, also where that is killed."""

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.errors import InputError
from hotrow.runtime.ray.sources import fetch_source, stored_source

pytestmark = pytest.mark.usefixtures("one_ray")

DRIVER = """
import sys, ray
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.runtime.ray.own import _on_loopback
from hotrow.runtime.ray.sources import fetch_source, stored_source
with _on_loopback():
    ray.init(address=sys.argv[1], namespace="mine", log_to_driver=False, _node_ip_address="127.0.0.1")
with stored_source(ParquetSource(sys.argv[2], Schema(label="click", numbers=("x",)))) as key:
    fetch_source(key)
    print(key, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"click": [0, 1], "x": [1.0, 2.0]}), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def stored() -> set[str]:
    """Keys of all drivers."""
    return {each["name"] for each in ray.util.list_named_actors(all_namespaces=True)}


def test_a_source_is_there_while_it_is_read_and_not_longer(file: Path) -> None:
    with stored_source(ParquetSource(file, Schema(label="click", numbers=("x",)))) as key:
        assert fetch_source(key).rows() == 2
    with pytest.raises(InputError, match="Ray does not have it any more: the run has ended"):
        fetch_source(key)


@pytest.mark.slow
def test_the_source_of_a_killed_driver_does_not_stay(file: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", DRIVER, address, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        key = driver.stdout.readline().strip()
        assert key
        assert key in stored()
        driver.kill()
    until = time.monotonic() + 60
    while key in stored():
        assert time.monotonic() < until
        time.sleep(0.1)
