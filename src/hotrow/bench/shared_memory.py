"""Tables in shared memory for a measurement: is there room for one, how fast is one taken over that was left behind?"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
from numpy.typing import NDArray

from hotrow.bench.growth import grow
from hotrow.bench.peers import EPS
from hotrow.bench.plan import StorePlan
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.config import Segment, Table
from hotrow.optim.sparse import Adagrad
from hotrow.store import RamTier
from hotrow.store.segments import SHARED_MEMORY, segment_path

ROOM_BYTES = 48 << 20  # a segment grows in blocks, partitions in chunks: the last ones are not full
ATTACH_RUNS = 3


def lack_of_room(plan: StorePlan, dim: int) -> str | None:
    """Why no table of this dim can be measured in shared memory, as a sentence; None if one can."""
    needed, free = plan.table_bytes(dim) + ROOM_BYTES, _free_bytes()
    if needed <= free:
        return None
    return (
        f"{SHARED_MEMORY} has {free / 2**30:.2f} GiB free and a table of dim {dim} needs {needed / 2**30:.2f} GiB, "
        f"d{dim}_attach_mrows and d{dim}_shm_vs_anon stay empty: mount it larger or take fewer --rows"
    )


@contextmanager
def temporary_segment(table: str) -> Iterator[Segment]:
    """A segment of its own for the table of this name; its file is gone afterwards, whatever happens."""
    segment = Segment(run=f"bench-{os.getpid()}-{secrets.token_hex(4)}", keep=True)
    try:
        yield segment
    finally:
        segment_path(segment.run, table).unlink(missing_ok=True)


def measure_attach(plan: StorePlan, all_keys: NDArray[np.uint64], dim: int, watch: BenchProgress) -> Figures:
    """A full LRU table is left behind and taken over again, on one thread: index and order are made anew."""
    if lack_of_room(plan, dim) is not None:
        return {"attach_mrows": None, "attach_open_ms": None}
    optimizer = Adagrad(lr=plan.lr, eps=EPS)
    with temporary_segment("attach") as segment:
        table = Table(name="attach", dim=dim, optimizer=optimizer, capacity=plan.rows, eviction="lru", segment=segment)
        watch.stage(f"dim {dim}: attaching to a segment", plan.fill_batches + ATTACH_RUNS)
        # Closing writes nothing but the mark that the file is kept: a kill would leave the same rows.
        grow(table, all_keys, plan.ids, threads=plan.threads, watch=watch).tier.close()
        runs = [_attach(table, watch) for _ in range(ATTACH_RUNS)]
    return {
        "attach_mrows": float(np.median([mrows for mrows, _ in runs])),
        "attach_open_ms": float(np.median([open_ms for _, open_ms in runs])),
    }


def _attach(table: Table, watch: BenchProgress) -> tuple[float, float]:
    """Millions of rows taken over per second, and the milliseconds before that in which the file was opened."""
    start = time.perf_counter()
    with closing(RamTier(table, threads=1)) as tier:
        seconds = time.perf_counter() - start
        attached = tier.attached
    assert attached is not None, "the segment was left for this"
    watch.tick()
    return attached.rows / attached.seconds / 1e6, (seconds - attached.seconds) * 1e3


def _free_bytes() -> int:
    try:
        system = os.statvfs(SHARED_MEMORY)
    except FileNotFoundError:
        return 0
    return system.f_bavail * system.f_frsize
