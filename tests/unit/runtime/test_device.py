"""Where a run computes: what is there, and a sentence where it is not. Which tables have rows there, and how many."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.client import gpu_tables
from hotrow.client.gpu_capacity import AUTO_SHARE, rows_in_gpu_memory
from hotrow.client.gpu_tables import GpuTables
from hotrow.config import HBM_BUCKET, HBM_DIM
from hotrow.errors import ConfigError
from hotrow.kernels.launch import DIM_MAX
from hotrow.runtime import device, local_tables
from hotrow.runtime.device import CPU, Device, device_of, free_memory
from hotrow.runtime.local import LocalBackend
from hotrow.runtime.local_tables import check_no_hbm, open_local_tables
from hotrow.runtime.state import RunState
from hotrow.store.hbm import HbmSpec, HbmTier
from hotrow.store.host_tier import HostTier, row_bytes
from hotrow.store.ram import RamTier
from hotrow.trainer.autocast import takes_bfloat16
from hotrow.worker.spec import TrainingSpec

HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes idle lanes


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What torch says of a machine with two GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (700, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 200)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 50)
    return monkeypatch


def test_auto_takes_the_gpu_that_is_there(two_gpus: pytest.MonkeyPatch) -> None:
    second = Device("cuda:1", torch.device("cuda:1"))
    assert [device_of(name) for name in ("auto", "cuda", "cuda:1")] == [second] * 3
    assert device_of("cuda:0").network == "cuda:0"
    assert device_of("cpu") == CPU


def test_memory_that_torch_holds_in_reserve_is_free(two_gpus: pytest.MonkeyPatch) -> None:
    """That of a trainer of this process that was closed."""
    assert free_memory(torch.device("cuda:1")) == 700 + 200 - 50


def test_free_memory_is_read_when_the_tables_open_and_the_network_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(torch.nn.Linear):
        def to(self, *given: Any, **named: Any) -> Any:
            happened.append("network")
            return super().to(*given, **named)

    happened: list[str] = []

    def free(_: torch.device) -> int:
        happened.append("memory")
        return 10**6

    monkeypatch.setattr(local_tables, "free_memory", free)
    where = Device("cpu", HERE)
    backend = LocalBackend(TrainingSpec(Net(1, 1), {"t": table(hbm=128)}, threads=1), RunState(), device=where)
    backend.close()
    assert happened == ["network", "memory"]


def test_rows_for_which_the_gpu_has_no_room_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(gpu_tables, "HbmTier", full)
    with pytest.raises(
        ConfigError,
        match=r"tables.t.hbm=300: 256 rows find no room on \w+ \(CUDA out of memory\): ask for less, or take hbm=0",
    ):
        open_local_tables(TrainingSpec(torch.nn.Linear(1, 1), {"t": table(hbm=300)}), Device("cpu", HERE, 10**6))


class CountedLoads(torch.optim.SGD):
    loads = 0

    def load_state_dict(self, given: Any) -> None:
        self.loads += 1
        self.state.clear()


@pytest.mark.parametrize(("device", "loads"), [("meta", 1), ("cpu", 0)])
def test_the_state_of_an_optimizer_that_trained_elsewhere_comes_to_the_network(device: str, loads: int) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = CountedLoads(model.parameters(), lr=0.1, momentum=0.9)
    for each in model.parameters():
        optimizer.state[each]["momentum_buffer"] = torch.zeros_like(each, device=device)
    LocalBackend(TrainingSpec(model, {"t": table()}, optimizer, threads=1), RunState()).close()
    assert optimizer.loads == loads


def test_bfloat16_is_that_of_the_device_of_the_run_and_not_emulated(two_gpus: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def current(device: torch.device) -> Any:
        asked.append(device)
        return nullcontext()

    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or asked[-1] == torch.device("cuda:0")

    two_gpus.setattr(torch.cuda, "device", current)
    two_gpus.setattr(torch.cuda, "is_bf16_supported", supported)
    assert takes_bfloat16("auto", hr.Local(device="cuda:0"))
    assert not takes_bfloat16("auto", hr.Local(device="cuda:1"))


def test_a_gpu_that_is_not_there_is_refused_with_a_remedy(two_gpus: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"engine.device='cuda:2': the last GPU here is 'cuda:1': take that, or 'auto'"
    ):
        device_of("cuda:2")
    two_gpus.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto") == CPU
    with pytest.raises(ConfigError, match=r"engine.device='cuda': torch .* finds no GPU here: install"):
        device_of("cuda")


def test_without_triton_auto_takes_the_cpu_and_says_so(two_gpus: pytest.MonkeyPatch) -> None:
    two_gpus.setattr(device, "find_spec", lambda _: None)
    found = device_of("auto")
    assert (found.network, found.rows) == ("cpu", None)
    assert found.remark is not None
    assert "pip install 'hotrow[gpu]'" in found.remark
    with pytest.raises(ConfigError, match=r"engine.device='cuda': Triton, which moves rows there, is not installed"):
        device_of("cuda")


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:9999"])
def test_devices_have_names(name: str) -> None:
    assert hr.Local(device=name).device == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:10000", "CPU", ""])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"Local.device=.*: must be 'auto', 'cpu', 'cuda', or a GPU by its number"):
        hr.Local(device=name)


def table(**settings: Any) -> hr.Table:
    return hr.Table(**{"dim": 4, "optimizer": hr.SGD(lr=0.1)} | settings)


@pytest.mark.parametrize(
    ("given", "kept"), [("auto", "auto"), (None, 0), (0, 0), (128, 128), (10**9, 10**9), ("40GB", "40GB")]
)
def test_rows_in_gpu_memory_are_a_number_or_a_size(given: Any, kept: Any) -> None:
    assert table(hbm=given).hbm == kept
    assert hr.Table(**table(hbm=given).model_dump()).hbm == kept


@pytest.mark.parametrize("given", [1, 127, -1, True, 1.5, "much", "0GB", [1]])
def test_other_numbers_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"Table.hbm="):
        table(hbm=given)


UNFIT: dict[str, dict[str, Any]] = {
    "type": {"type": "float16"},
    "dim": {"dim": HBM_DIM + 1},
    "optimizer": {"optimizer": hr.FTRL(lr=0.1)},
    "admission": {"admission": hr.AtLeast(count=2)},
    "expiry": {"expiry": 10},
    "last_seen": {"last_seen": True},
    "segment": {"segment": hr.Segment(run="a")},
    "cache": {"cache": hr.Cache(capacity=10)},
    "capacity": {"capacity": 1000},
}


@pytest.mark.parametrize("name", UNFIT)
def test_tables_that_gpu_memory_cannot_hold_stay_in_host_memory_or_are_refused(name: str) -> None:
    unfit = table(**UNFIT[name])
    assert unfit.hbm_fault is not None
    assert name in unfit.hbm_fault
    taken, remarks = rows_in_gpu_memory({"t": unfit}, 10**9)
    assert not taken
    assert remarks == [f"table 't' stays in host memory: {unfit.hbm_fault}"]
    with pytest.raises(ConfigError, match=r"Table.hbm=1000: .*; or leave hbm out"):
        table(hbm=1000, **UNFIT[name])
    assert table(hbm=0, **UNFIT[name]).hbm == 0


def test_the_largest_dim_and_a_capacity_with_a_disk_fit() -> None:
    assert HBM_DIM == DIM_MAX
    assert table(dim=HBM_DIM, hbm=1000).hbm_fault is None
    assert table(capacity=1000, disk="1GB", path="/tmp", hbm=1000).hbm_fault is None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": hr.Adagrad(lr=0.1, swap=hr.Swap(period=5, decay=0.5))},
        {"optimizer": hr.Adam(lr=0.1), "dim": 7},
        {"clock": True},
    ],
)
def test_the_bytes_of_a_row_are_those_that_a_table_takes(settings: dict[str, Any]) -> None:
    made = table(**settings)
    host = HostTier(RamTier(made))
    rows = 1024
    taken = HbmTier(host.spec(rows), "cpu" if not torch.cuda.is_available() else "cuda").stats().bytes
    host.tier.close()
    assert 0 <= row_bytes(made) - taken / rows < 1


def test_memory_is_shared_by_tables_that_do_not_ask_for_some() -> None:
    asking, one, two, none = table(name="a", hbm=1000), table(name="b"), table(name="c", dim=8), table(name="d", hbm=0)
    free = 1_000_000
    taken, remarks = rows_in_gpu_memory({each.name: each for each in (asking, one, two, none)}, free)
    assert not remarks
    share = int((free - 1000 * row_bytes(asking)) * AUTO_SHARE) // 2
    assert taken == {"a": 1000, "b": share // row_bytes(one), "c": share // row_bytes(two)}


def test_a_size_is_so_many_rows_of_at_least_one_bucket() -> None:
    least = HBM_BUCKET * row_bytes(table())
    assert rows_in_gpu_memory({"t": table(hbm=f"{least}B")}, least) == ({"t": HBM_BUCKET}, [])
    with pytest.raises(ConfigError, match=r"tables.default.hbm='\d+B': is room for 127 rows, and they come in buckets"):
        rows_in_gpu_memory({"t": table(hbm=f"{least - 1}B")}, least)
    with pytest.raises(ConfigError, match=r"tables 't' ask for .* of GPU memory with hbm, and .* are free"):
        rows_in_gpu_memory({"t": table(hbm=f"{least}B")}, least - 1)
    taken, (remark,) = rows_in_gpu_memory({"t": table()}, least)
    assert not taken
    assert remark.startswith("table 't' stays in host memory: its share of GPU memory is")


def test_tables_open_where_the_device_is() -> None:
    here = Device("cpu", HERE, 10**6)

    def opened(made: hr.Table, where: Device) -> tuple[type, tuple[str, ...]]:
        tables, remarks = open_local_tables(TrainingSpec(torch.nn.Linear(1, 1), {"t": made}, threads=1), where)
        tables.close()
        return type(tables), remarks

    kind, (remark,) = opened(table(hbm=1000), here)
    assert kind is GpuTables
    assert remark == f"table 't': {here.rows} has room for 896 rows"  # seven whole buckets
    assert opened(table(hbm=0), here) == (hr.client.LocalTables, ())
    assert opened(table(), CPU) == (hr.client.LocalTables, ())
    cached = table(cache=hr.Cache(capacity=10))
    of_cache = "all tables stay in host memory: table 't' has a cache"
    kind, remarks = opened(cached, here)
    assert (kind.__name__, remarks) == ("CachedLocalTables", (of_cache,))
    assert opened(cached, CPU)[1] == ()
    both = {"t": cached.model_copy(update={"name": "t"}), "u": table(name="u", hbm=128)}
    with pytest.raises(ConfigError, match=r"tables.t.cache: .* hbm is set for 'u': leave cache or hbm out"):
        open_local_tables(TrainingSpec(torch.nn.Linear(1, 1), both), here)


def test_a_cluster_and_a_module_refuse_rows_in_gpu_memory() -> None:
    with pytest.raises(ConfigError, match=r"tables.t.hbm=128: rows of a cluster are on its shards: leave hbm out"):
        check_no_hbm({"t": table(hbm=128)})
    check_no_hbm({"t": table(), "u": table(hbm=0)})
    with pytest.raises(ConfigError, match=r"hbm=128: this module has its rows in host memory"):
        hr.nn.EmbeddingBag(tables={"t": table(name="t", hbm=128)})
    assert HbmSpec.of(table(), 128).slots == 128
