"""Shared memory beside loopback TCP: large frames and small messages between two processes, in the same rounds.

Both clients are connected to the same server and differ in `Limits.ring_bytes` only. The server reads every byte of a
request, since it copies it into its reply.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.cluster.talk import TCP, ask, echo_process
from hotrow.bench.rounds import WARM_UP_ROUNDS, BenchProgress, Figures, Seconds, interleave, median_ratio, timed
from hotrow.errors import HotrowError
from hotrow.transport.client import RpcClient

LARGE_BURST, SMALL_BURST = 4, 25  # messages in a row
SIZES = {"256_kib": 1 << 18, "1_mib": 1 << 20, "4_mib": 1 << 22}  # of frames beside the large one


def measure(plan: ClusterPlan, watch: BenchProgress) -> Figures:
    """How many times as fast shared memory is: frames that arrive, frames that are then read, and small messages."""
    frame = np.random.default_rng(0).integers(0, 256, plan.large_bytes, dtype=np.uint8)
    copied = np.empty_like(frame)

    def read(wire: RpcClient) -> None:
        np.copyto(copied, np.frombuffer(ask(wire, [frame]).frames[0], np.uint8))

    with echo_process("key") as echo, echo.client() as shared, echo.client(TCP) as tcp:
        wires = {"shm": shared, "tcp": tcp}
        cuts = {name: frame[:size] for name, size in SIZES.items() if size < plan.large_bytes}
        watch.stage("shared memory beside TCP", (3 + len(cuts)) * (WARM_UP_ROUNDS + plan.rounds))
        by_size = {
            name: _raced(wires, partial(ask, frames=[cut]), plan, watch, LARGE_BURST) for name, cut in cuts.items()
        }
        large = _raced(wires, partial(ask, frames=[frame]), plan, watch, LARGE_BURST)
        reads = _raced(wires, read, plan, watch, LARGE_BURST)
        small = _raced(wires, ask, plan, watch, SMALL_BURST)
        if shared.counts.ring_full or not shared.counts.ring_bytes_in or tcp.counts.ring_bytes_in:
            raise HotrowError(f"frames did not go the way that is measured: {shared.counts}, {tcp.counts}")
    return {
        "shm_vs_tcp": median_ratio(large["tcp"], large["shm"]),
        "shm_read_vs_tcp": median_ratio(reads["tcp"], reads["shm"]),
        "shm_small_vs_tcp": median_ratio(small["tcp"], small["shm"]),
        **{f"shm_{name}_vs_tcp": median_ratio(each["tcp"], each["shm"]) for name, each in by_size.items()},
        "shm_gibps": _gibps(plan, large["shm"]),
        "tcp_gibps": _gibps(plan, large["tcp"]),
        "shm_read_gibps": _gibps(plan, reads["shm"]),
        "shm_round_trip_ms": 1e3 * float(np.median(small["shm"])),
        "tcp_round_trip_ms": 1e3 * float(np.median(small["tcp"])),
    }


def _raced(
    wires: Mapping[str, RpcClient],
    run: Callable[[RpcClient], object],
    plan: ClusterPlan,
    watch: BenchProgress,
    burst: int,
) -> dict[str, Seconds]:
    contestants = {name: timed(lambda _, wire=wire: run(wire)) for name, wire in wires.items()}  # type: ignore[misc]
    return interleave(contestants, plan.rounds, watch, burst=burst)


def _gibps(plan: ClusterPlan, seconds: Seconds) -> float:
    """Bytes both ways over the time of the median round."""
    return 2 * plan.large_bytes / float(np.median(seconds)) / 2**30
