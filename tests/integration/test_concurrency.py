"""Several Python threads on one tier: nothing is lost, nothing is torn, and a forked child can go on."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow import SGD, Constant, Table
from hotrow.store import RamTier
from native_build import built

F32 = NDArray[np.float32]
DIM, KEYS, BATCH, ROUNDS, WORKERS = 8, 2000, 2500, 30, 4


def integer_tier(threads: int) -> RamTier:
    """SGD with lr 1 from 0: a row is minus the sum of its gradients, exact in float32 while they are small integers."""
    return RamTier(Table(dim=DIM, optimizer=SGD(lr=1.0), init=Constant(value=0.0)), threads=threads, partitions=8)


def run_all(workers: list[Callable[[], object]]) -> None:
    """Run every worker in a thread of its own, starting together; raise what any of them raised."""
    ready = threading.Barrier(len(workers))

    def start(work: Callable[[], object]) -> None:
        ready.wait()
        work()

    with ThreadPoolExecutor(len(workers)) as pool:
        for done in [pool.submit(start, work) for work in workers]:
            done.result()


def values_of(tier: RamTier, count: int) -> F32:
    out = np.empty((count, DIM), np.float32)
    tier.find(np.arange(count, dtype=np.uint64), out)
    return out


@pytest.mark.parametrize("threads", [1, 2])
def test_no_gradient_is_lost_between_threads(threads: int) -> None:
    tier = integer_tier(threads)
    expected = np.zeros((KEYS, DIM), np.float64)
    work: list[list[tuple[NDArray[np.uint64], F32]]] = []
    for worker in range(WORKERS):
        generator = np.random.default_rng(worker)
        keys = [generator.integers(0, KEYS, BATCH).astype(np.uint64) for _ in range(ROUNDS)]
        work.append([(k, generator.integers(-5, 6, (BATCH, DIM)).astype(np.float32)) for k in keys])
        for k, gradients in work[-1]:
            np.add.at(expected, k.astype(np.int64), gradients)

    def train(batches: list[tuple[NDArray[np.uint64], F32]]) -> None:
        out = np.empty((BATCH, DIM), np.float32)
        for step, (keys, gradients) in enumerate(batches):
            batch = tier.find_or_init(keys, out)
            assert tier.apply(batch, gradients, step=step).absent == 0

    run_all([partial(train, batches) for batches in work])
    np.testing.assert_array_equal(values_of(tier, KEYS), -expected)
    assert tier.verify() == []


def test_readers_never_see_half_a_row() -> None:
    tier = integer_tier(1)
    keys = np.arange(500, dtype=np.uint64)
    tier.find_or_init(keys)
    stop = threading.Event()

    def write() -> None:
        for step in range(300):
            tier.apply(keys, np.ones((len(keys), DIM), np.float32), step=step)
        stop.set()

    def read() -> None:
        out = np.empty((len(keys), DIM), np.float32)
        while not stop.is_set():
            tier.find(keys, out)
            assert (out == out[:, :1]).all()

    def export() -> None:
        while not stop.is_set():
            for chunk in tier.export(rows=128):
                assert (chunk.values == chunk.values[:, :1]).all()
                assert (chunk.values[:, 0] == 1.0 - chunk.fields["version"].astype(np.float32)).all()

    run_all([write, read, export])
    np.testing.assert_array_equal(values_of(tier, len(keys)), -300.0)


def test_rows_that_stay_survive_those_that_come_and_go() -> None:
    tier = integer_tier(2)
    staying = np.arange(KEYS, dtype=np.uint64)
    tier.find_or_init(staying)
    stop = threading.Event()

    def train() -> None:
        batch = tier.batch(staying)
        for step in range(60):
            applied = tier.apply(batch, np.ones((KEYS, DIM), np.float32), step=step)
            assert (applied.rows, applied.absent) == (KEYS, 0)
        stop.set()

    def come_and_go(worker: int) -> None:
        generator = np.random.default_rng(worker)
        while not stop.is_set():
            keys = (generator.integers(0, 5000, BATCH) + 10_000).astype(np.uint64)
            batch = tier.find_or_init(keys)
            tier.apply(batch, np.ones((BATCH, DIM), np.float32))
            tier.erase(keys[::2].copy())

    def look() -> None:
        while not stop.is_set():
            exported = np.concatenate([chunk.keys for chunk in tier.export(rows=1000)])
            assert np.isin(staying, exported).all()
            assert len(np.unique(exported[exported < KEYS])) == (exported < KEYS).sum()
            tier.stats()
            len(tier)

    run_all([train, partial(come_and_go, 1), partial(come_and_go, 2), look])
    np.testing.assert_array_equal(values_of(tier, KEYS), -60.0)
    assert tier.verify() == []
    stats = tier.stats()
    assert stats.rows == stats.created - stats.erased == len(tier)


def test_threads_create_a_row_once() -> None:
    table = Table(dim=DIM, optimizer=SGD(lr=1.0), init=Constant(value=0.0))
    keys = np.arange(5000, dtype=np.uint64)
    for _ in range(20):
        tier = RamTier(table, threads=1, partitions=1)
        run_all([partial(tier.find_or_init, tier.batch(keys)) for _ in range(WORKERS)])
        assert (len(tier), tier.stats().created, tier.verify()) == (len(keys), len(keys), [])


def test_updates_of_one_row_wait_for_each_other() -> None:
    """Nothing but updates, of the same rows in the same order: without the lock some would be lost."""
    tier = RamTier(Table(dim=64, optimizer=SGD(lr=1.0), init=Constant(value=0.0)), partitions=1)
    keys, rounds = np.arange(1000, dtype=np.uint64), 200
    tier.find_or_init(keys)
    ones = np.ones((len(keys), 64), np.float32)

    def train() -> None:
        batch = tier.batch(keys)
        for _ in range(rounds):
            tier.apply(batch, ones, per="unique")

    run_all([train] * WORKERS)
    out = np.empty_like(ones)
    tier.find(keys, out)
    np.testing.assert_array_equal(out, np.float32(-WORKERS * rounds))
    np.testing.assert_array_equal(tier.versions(keys), 1 + WORKERS * rounds)


FORK = """
import os, sys, threading, time
import numpy as np
from hotrow import SGD, Constant, HotrowError, Segment, Table
from hotrow.store import RamTier
from hotrow.store.kernels import unique

settings = {"dim": 4, "optimizer": SGD(lr=1.0), "init": Constant(value=0.0)}
segment = Segment(run="fork", directory=sys.argv[1])
tiers = [RamTier(Table(name="parent", segment=each, **settings), threads=2) for each in (None, segment)]
done = threading.Event()


def hammer(seed):
    generator = np.random.default_rng(seed)
    tier = tiers[seed % 2]
    while not done.is_set():
        keys = generator.integers(0, 20_000, 4000).astype(np.uint64)
        tier.apply(tier.find_or_init(keys), np.ones((4000, 4), np.float32))
        tier.erase(keys[:2000])
        unique(np.tile(keys, 40), threads=4)
        tier.stats()


def child(number):
    if number % 5 == 0:
        return  # never touches a table, and takes them apart at its end
    tier = tiers[number % 2]
    try:
        tier.find_or_init(np.arange(10, dtype=np.uint64))
    except HotrowError as error:
        told = f"table 'parent' belongs to process {os.getppid()}: a forked child cannot use it"
        assert str(error).startswith(told), error
    else:
        raise AssertionError("the child used its parent's table")
    if number % 5 == 1:
        tier.close()
    own = RamTier(Table(**settings), threads=2)
    keys = np.arange(5000, dtype=np.uint64)
    own.apply(own.find_or_init(keys), np.ones((5000, 4), np.float32))
    assert len(own) == 5000 and own.verify() == []


workers = [threading.Thread(target=hammer, args=(seed,)) for seed in range(4)]
for worker in workers:
    worker.start()
children = {}
for number in range(25):
    time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        child(number)
        del tiers
        os._exit(0)
    children[pid] = number
ended, end = {}, time.monotonic() + 60
while len(ended) < len(children) and time.monotonic() < end:
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid == 0:
        time.sleep(0.01)
    else:
        ended[children[pid]] = status
for pid in children:
    if children[pid] not in ended:
        os.kill(pid, 9)
done.set()
for worker in workers:
    worker.join()
print(sorted(ended.items()))
assert len(ended) == 25 and not any(ended.values())
for tier in tiers:
    assert tier.verify() == []
    tier.close()
"""


def test_children_forked_while_threads_work_are_refused_the_table_and_never_hang(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(tmp_path.iterdir()) == []


LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
import hotrow as hr

emb = hr.nn.EmbeddingBag(dim=4, optimizer=hr.SGD(lr=1.0))
emb(torch.zeros((1, 1), dtype=torch.int64))
data = TensorDataset(torch.arange(64).reshape(16, 4))
batches = 0
for (ids,) in DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork"):
    emb(ids).sum().backward()
    batches += 1
assert batches == 4
"""


@pytest.mark.slow
def test_loader_processes_that_never_touch_a_table_may_be_forked() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", LOADER], capture_output=True, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", "address"])  # address: with UBSan
def test_sanitizers_find_nothing_in_many_threads_on_a_table_and_a_disk_tier(sanitizer: str, tmp_path: Path) -> None:
    built("stress", tmp_path, "HOTROW_MODULE=OFF", "HOTROW_TESTS=ON", f"HOTROW_SANITIZE={sanitizer}")
    run = subprocess.run([str(tmp_path / "stress")], capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Sanitizer" not in run.stderr
    assert "runtime error" not in run.stderr
