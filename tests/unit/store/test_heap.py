"""Freed memory stays with a trainer: the buffers of the next step cost no page faults."""

import os
import subprocess
import sys

import pytest

from hotrow import _native
from hotrow.store.heap import keep_freed_memory

PROGRAM = """
import resource, sys
import torch
from hotrow.store.heap import keep_freed_memory
if sys.argv[1] == "keep":
    print(keep_freed_memory())
def step():
    return sum(float(block[0]) for block in [torch.ones(5_000_000) for _ in range(4)])  # 20 MB each
for _ in range(12):  # glibc searches its heap for aligned blocks: it grows over several steps before it is used again
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def told(*given: str, program: str = PROGRAM, **environment: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", program, *given],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives freed memory back at once")
def test_freed_buffers_are_used_again_without_page_faults() -> None:
    mapped = told("leave", MALLOC_MMAP_THRESHOLD_="131072")  # as a new process has it; it rises with what is freed
    kept, again = told("keep")
    assert kept == "True"
    assert int(again) < int(mapped[0]) / 3  # of four blocks one may come from a fresh part of the heap


PLANS = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from hotrow import Table
from hotrow.client.buffers import BufferPool
from hotrow.store import RamTier
tier, pool, random = RamTier(Table(dim=1), threads=1), BufferPool(), np.random.default_rng(0)
batches = [random.integers(0, 1 << 20, 400_000 + 10_000 * number) for number in range(3)]  # plans of 6 MB each
def plans(thread):
    for keys in batches:
        both = pool.join([keys[:100_000], keys[100_000:]])
        plan = thread.submit(tier.batch, both).result()  # made in one thread, freed in another
        plan.read_inverse(pool.take_integers(len(plan)))
        del plan, both
with ThreadPoolExecutor(1) as thread:
    for _ in range(2):
        plans(thread)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    plans(thread)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux does")
def test_plans_are_made_without_page_faults_whatever_the_heap_keeps() -> None:
    (faults,) = told(program=PLANS, MALLOC_MMAP_THRESHOLD_="131072")  # every large block is mapped and unmapped
    assert int(faults) < 3 * (6 << 20) / 4096 / 20


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072", False),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072", False),
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", True),
    ],
)
def test_a_choice_of_the_user_stays(name: str, value: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def keep(size: int) -> bool:
        asked.append(size)
        return True

    monkeypatch.setattr(_native, "keep_freed_memory", keep)
    monkeypatch.setenv(name, value)
    assert keep_freed_memory() == kept == bool(asked)
