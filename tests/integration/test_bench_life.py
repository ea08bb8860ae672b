"""What `hotrow bench store` measures of a row's life, at tiny sizes: fair rivals, no file left behind, gaps named."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow import Adagrad, Table
from hotrow.bench import life, shared_memory
from hotrow.bench.growth import grow
from hotrow.bench.ids import random_order_keys
from hotrow.bench.plan import EVICTION_ROUNDS_MAX, StorePlan
from hotrow.bench.rounds import BURST, WARM_UP_ROUNDS, SilentProgress
from hotrow.bench.workload import HotrowStore, draw
from hotrow.store import RamTier
from hotrow.store.segments import SHARED_MEMORY

TINY = StorePlan(rows=2_000, dims=(4,), rounds=2, threads=1, samples=16, pool=4, copy_bytes=1 << 16)
KEYS = random_order_keys(TINY.rows)


@pytest.fixture
def plain() -> RamTier:
    return grow(Table(dim=4, optimizer=Adagrad()), KEYS, TINY.ids, threads=1, watch=SilentProgress()).tier


def files_of_the_bench() -> set[Path]:
    return set(SHARED_MEMORY.glob(f"hotrow-bench-{os.getpid()}-*"))


def test_the_full_table_evicts_and_the_plain_one_only_finds(plain: RamTier) -> None:
    before = plain.stats().created
    figures = life.measure_eviction(TINY, KEYS, plain, SilentProgress())
    assert 0 < (figures["evicted_per_batch"] or 0) < 1
    assert (figures["evict_step_vs_plain"] or 0) > 0
    assert plain.stats().created == before


def test_every_turn_of_the_eviction_has_a_batch_of_its_own(plain: RamTier, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    step = HotrowStore.step

    def noting_step(ours: HotrowStore, keys: NDArray[np.uint64], gradients: NDArray[np.float32]) -> None:
        seen.append(keys.tobytes())
        step(ours, keys, gradients)

    monkeypatch.setattr(HotrowStore, "step", noting_step)
    life.measure_eviction(TINY, KEYS, plain, SilentProgress())
    turns = (WARM_UP_ROUNDS + TINY.rounds) * BURST
    assert len(seen) == 2 * turns  # both tables
    assert len(set(seen)) == turns


def test_eviction_keeps_its_batches_within_bounds_however_many_rounds_are_asked_for() -> None:
    assert StorePlan(rounds=EVICTION_ROUNDS_MAX - 1).eviction_rounds == EVICTION_ROUNDS_MAX - 1
    assert StorePlan(rounds=10_000).eviction_rounds == EVICTION_ROUNDS_MAX


def test_attach_takes_every_row_over_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    attached = []

    class NotingTier(RamTier):
        def close(self, *, leave: bool = False) -> None:
            attached.append(self.attached)
            super().close(leave=leave)

    monkeypatch.setattr(shared_memory, "RamTier", NotingTier)
    figures = shared_memory.measure_attach(TINY, KEYS, 4, SilentProgress())
    assert (figures["attach_mrows"] or 0) > 0
    assert len(attached) == shared_memory.ATTACH_RUNS
    for found in attached:
        assert found is not None
        assert 0.95 * TINY.rows < found.rows <= TINY.rows  # full partitions evicted a few while others had room
        assert found.dropped == 0
    assert not files_of_the_bench()


def test_shared_memory_is_given_back(plain: RamTier) -> None:
    work = draw(TINY, TINY.rows)
    assert (life.measure_shared(TINY, work, KEYS, plain, SilentProgress()) or 0) > 0
    assert not files_of_the_bench()


class FailsInTheMiddle(SilentProgress):
    """Ends a measurement after its first batch, if its file is there by then."""

    def tick(self) -> None:
        assert len(files_of_the_bench()) == 1
        raise KeyboardInterrupt


def test_the_file_goes_also_when_a_measurement_is_cut_short(plain: RamTier) -> None:
    with pytest.raises(KeyboardInterrupt):
        shared_memory.measure_attach(TINY, KEYS, 4, FailsInTheMiddle())
    assert not files_of_the_bench()
    with pytest.raises(KeyboardInterrupt):
        life.measure_shared(TINY, draw(TINY, TINY.rows), KEYS, plain, FailsInTheMiddle())
    assert not files_of_the_bench()


def test_without_room_the_figures_are_null_and_the_sentence_names_them(
    plain: RamTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = TINY.table_bytes(4) + shared_memory.ROOM_BYTES
    monkeypatch.setattr(shared_memory, "_free_bytes", lambda: needed)
    assert shared_memory.lack_of_room(TINY, 4) is None
    monkeypatch.setattr(shared_memory, "_free_bytes", lambda: needed - 1)
    assert "d4_attach_mrows and d4_shm_vs_anon stay empty" in str(shared_memory.lack_of_room(TINY, 4))
    assert shared_memory.measure_attach(TINY, KEYS, 4, SilentProgress())["attach_mrows"] is None
    assert life.measure_shared(TINY, draw(TINY, TINY.rows), KEYS, plain, SilentProgress()) is None
