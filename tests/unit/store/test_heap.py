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
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def told(*given: str, **environment: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given],
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
    assert int(again) < int(mapped[0]) / 5  # a block may come from a fresh part of the heap


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
