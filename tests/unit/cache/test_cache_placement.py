"""Cached rows of a trainer are in the memory of its GPU, unless the table or the installation forbids it."""

import logging

import pytest
import torch
from torch import nn

import hotrow as hr
from hotrow.cache import placement
from hotrow.cache.placement import caches_on_device
from hotrow.config import HBM_DIM
from hotrow.errors import ConfigError
from hotrow.models.interactions import KERNEL_WIDTH_MAX
from hotrow.worker.setup import RoleSpec, TrainerSetup
from hotrow.worker.spec import TrainingSpec
from hotrow.worker.trainer_rows import _devices_of_caches

GPU = torch.device("cuda", 1)
TABLES = {
    "cached": hr.Table(dim=1024, cache=hr.Cache(capacity=10)),
    "on the host": hr.Table(dim=4, cache=hr.Cache(capacity=10, memory="host")),
    "plain": hr.Table(dim=4),
}


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "find_spec", lambda name: object())


def test_caches_are_where_the_network_computes() -> None:
    assert caches_on_device(TABLES, GPU) == ({"cached": GPU}, {})
    assert caches_on_device(TABLES, torch.device("cpu")) == ({}, {})


def test_rows_that_kernels_do_not_hold_stay_in_host_memory_and_the_trainer_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wide = TABLES | {"wide": hr.Table(dim=1025, cache=hr.Cache(capacity=10))}
    role = RoleSpec(TrainingSpec(nn.Linear(1, 1), wide))
    with caplog.at_level(logging.WARNING, "hotrow.worker"):
        assert _devices_of_caches(TrainerSetup(role, [], [], {}, device="cuda:1")) == {"cached": GPU}
    assert [record.getMessage() for record in caplog.records] == [
        "tables.wide.cache: its rows are in host memory, not on cuda:1: dim=1,025: kernels have rows of 1,024 floats "
        "at most"
    ]


def test_all_say_the_same_of_the_floats_that_a_kernel_holds() -> None:
    launch = pytest.importorskip("hotrow.kernels.launch", reason="Triton is not installed: pip install 'hotrow[gpu]'")
    assert launch.DIM_MAX == HBM_DIM == KERNEL_WIDTH_MAX


def test_without_triton_all_rows_stay_in_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "find_spec", lambda name: None)
    there, stay = caches_on_device(TABLES, GPU)
    assert not there
    assert list(stay) == ["cached"]
    assert stay["cached"].endswith("not on cuda:1: Triton is not installed: pip install 'hotrow[gpu]'")


def test_a_memory_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Cache\.memory='gpu': Input should be 'auto' or 'host'"):
        hr.Cache(capacity=10, memory="gpu")


def test_a_capacity_for_which_the_device_has_no_room_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    device_columns = pytest.importorskip("hotrow.cache.device_columns", reason="Triton is not installed")
    rule = pytest.importorskip("hotrow.kernels.update_rule").UpdateRule("sgd", lr=0.1)

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device_columns.torch, "zeros", full)
    with pytest.raises(ConfigError, match=r"Cache\.capacity: 7 rows on cpu find no room there \(CUDA out of memory\)"):
        device_columns.DeviceColumns(3, rule, 1, 7, torch.device("cpu"))
