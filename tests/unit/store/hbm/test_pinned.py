"""Rows in pinned host memory: made, read and written by kernels, and the tier below a working set."""

import mmap
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.errors import ConfigError, InputError
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store import RamTier
from hotrow.store.hbm import HbmRows, HbmSpec, HbmTier, WorkingSet
from hotrow.store.hbm.pinned import PinnedTier
from hotrow.store.hbm.pinned_memory import HUGE_PAGE, PinnedMemory, allocate_pages
from working_set_runs import DEVICE, DIM, SMALL, batches, check_same_rows, gradients, train_in_memory

ADAM = UpdateRule("adam", lr=0.01)


def spec(rows: int = 200, **settings: Any) -> HbmSpec:
    return HbmSpec(dim=65, capacity=rows, rule=ADAM, group_slots=4, groups=2, **settings)


def keys(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, device=DEVICE)


def some_rows(asked: torch.Tensor, table: HbmSpec) -> HbmRows:
    count = len(asked)
    values = torch.arange(count * table.dim, dtype=torch.float32, device=DEVICE).view(count, -1)
    state = torch.arange(count * table.state_dim, device=DEVICE).view(count, -1) / 2
    fields = {
        name: torch.arange(1, count + 1, dtype=torch.int32, device=DEVICE) * n for n, name in enumerate(table.fields, 1)
    }
    return HbmRows(asked, values, state, fields)


def check_equal(rows: HbmRows, wanted: HbmRows) -> None:
    assert torch.equal(rows.keys, wanted.keys)
    assert torch.equal(rows.values, wanted.values)
    assert torch.equal(rows.state, wanted.state)
    assert {name: column.tolist() for name, column in rows.fields.items()} == {
        name: column.tolist() for name, column in wanted.fields.items()
    }


def test_new_rows_are_those_of_a_table_in_gpu_memory() -> None:
    table = spec()
    below, asked = PinnedTier(table, DEVICE), keys(5, -1, 0, 2**62)
    found = below.read(asked, samples=0)
    upper = HbmTier(table, DEVICE)
    upper.find_or_init(asked)
    (wanted,) = upper.export()
    order = torch.argsort(found.keys), torch.argsort(wanted.keys)
    check_equal(found.select(order[0]), wanted.select(order[1]))
    assert len(below) == 4


def test_rows_are_read_as_they_were_written_in_the_order_that_is_asked_for() -> None:
    table, asked = spec(), torch.arange(70, device=DEVICE) * 7
    below = PinnedTier(table, DEVICE)
    rows = some_rows(asked, table)
    below.write(rows)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    check_equal(below.read(asked[order], samples=0), rows.select(order))
    exported = [each for chunk in below.export(16) for each in chunk.keys.tolist()]
    assert sorted(exported) == asked.tolist()
    again = below.read(asked[:3], samples=0)
    check_equal(again, rows.select(torch.arange(3, device=DEVICE)))
    assert len(below) == 70


def test_no_rows_are_no_launch() -> None:
    below = PinnedTier(spec(), DEVICE)
    assert len(below.read(keys()[:0].to(torch.int64), samples=0)) == 0


def test_a_table_that_is_full_says_so_and_keeps_its_rows() -> None:
    table = spec(22)  # one bucket of 32
    below = PinnedTier(table, DEVICE)
    first = below.read(torch.arange(32, device=DEVICE), samples=0)
    with pytest.raises(InputError, match=r"2 of 2 new rows find no slot .* has 32 of 22 rows, raise its capacity"):
        below.read(keys(1, 100, 101), samples=0)
    check_equal(below.read(torch.arange(32, device=DEVICE), samples=0), first)


def test_new_rows_that_could_not_be_made_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    below, asked = PinnedTier(spec(), DEVICE), keys(1, 2, 3)
    with monkeypatch.context() as patch:
        patch.setattr(below, "_first_rows", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("no memory")))
        with pytest.raises(torch.OutOfMemoryError):
            below.read(asked, 0)
    assert len(below) == 0
    assert below.read(asked, 0).fields["version"].tolist() == [1, 1, 1]


def test_new_rows_begin_in_the_period_of_their_samples() -> None:
    table = HbmSpec(dim=2, capacity=64, rule=UpdateRule("sgd", lr=0.1, swap_period=8, swap_decay=0.5), **SMALL)
    below = PinnedTier(table, DEVICE)
    assert below.read(keys(1), samples=17).fields["period"].tolist() == [2]


def test_sizes_are_counted() -> None:
    below = PinnedTier(spec(64), DEVICE)
    slots = 96  # 64 / 0.7, in buckets of 32
    assert below.host_bytes == slots * 4 * (65 + 2 * 65 + 3)
    assert below.device_bytes == slots * 10 + slots  # keys, digests, ages; 4 bytes of locks for each group of 4


@pytest.mark.parametrize("folded", [True, False])
def test_rows_after_a_flush_are_those_of_training_in_memory(folded: bool) -> None:
    table = hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.1, swap=hr.Swap(period=8, decay=0.5)))
    below = PinnedTier(HbmSpec.of(table, 200, **SMALL), DEVICE)
    upper = HbmTier(below.spec(24), DEVICE)
    step, large = 0, batches(7)
    with WorkingSet(upper, below) as working:

        def parts(batch: list[Any]) -> list[Any]:
            tensors = [torch.tensor(part, device=DEVICE) for part in batch]
            return [upper.batch(each) for each in tensors] if folded else tensors

        asked = parts(large[0])
        for number, batch in enumerate(large):
            working.begin(asked)
            following = parts(large[number + 1]) if number + 1 < len(large) else None
            if following:
                working.prefetch(following)
            for part, numbers in zip(asked, batch, strict=True):
                plan = working.find(part, torch.empty(len(numbers), DIM, device=DEVICE))
                given = torch.tensor(gradients(numbers, step), device=DEVICE)
                working.apply(plan, given, step=step, samples=5 * (step + 1))
                step += 1
            asked = following or []
    assert working.moved.up_ahead > 0
    assert working.moved.reread == 0
    assert working.moved.down > 0
    assert min(working.moved.read_s, working.moved.write_s, working.moved.wait_s) > 0
    wanted = train_in_memory(table)
    check_same_rows(_in_memory(below, table), wanted)


def _in_memory(below: PinnedTier, table: hr.Table) -> RamTier:
    tier = RamTier(table)
    for rows in below.export():
        fields = {name: column.numpy().view(np.uint32) for name, column in rows.fields.items()}
        tier.put(rows.keys.numpy().view(np.uint64), rows.values.numpy(), rows.state.numpy(), fields)
    return tier


def test_memory_that_cannot_be_locked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runtime:
        def __init__(self) -> None:
            self.unlocked: list[int] = []

        def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
            return 2 if size > 2**20 else 0

        def cudaHostUnregister(self, address: int) -> int:
            self.unlocked.append(address)
            return 0

    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    memory = PinnedMemory(torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())
    address = memory.zeros(3, 5, torch.float32).data_ptr()
    with pytest.raises(ConfigError, match=r"4,000,000 bytes of host memory cannot be locked .* error 2"):
        memory.zeros(1_000_000, 1, torch.float32)
    del memory
    assert runtime.unlocked == [address]


def test_a_kernel_without_huge_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class SmallPages(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", SmallPages)
    assert len(allocate_pages(1)) == HUGE_PAGE
