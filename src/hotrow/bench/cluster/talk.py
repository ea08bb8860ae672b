"""The wire by itself: a round trip and a large frame over loopback, under each kind of security."""

import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.errors import HotrowError
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Done, Query, Stop
from hotrow.transport.request import Request
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import RpcServer
from hotrow.types import Security

KINDS: tuple[Security, ...] = ("off", "key", "curve")
LARGE = 24  # frames there and back


@dataclass(frozen=True, slots=True)
class Talk:
    """What the bound of a mode needs to know of the wire."""

    round_trip_s: float
    bytes_per_s: float


def measure(plan: ClusterPlan, watch: BenchProgress) -> tuple[Figures, Talk]:
    """Rates under each kind, and those of `key`, which is what clusters use unless told otherwise."""
    watch.stage("the wire by itself", len(KINDS))
    found: Figures = {}
    talks = {}
    for kind in KINDS:
        talks[kind] = talk = _talked(plan, kind)
        found |= {f"wire_{kind}_round_trip_ms": 1e3 * talk.round_trip_s, f"wire_{kind}_gibps": talk.bytes_per_s / 2**30}
        watch.tick()
    return found, talks["key"]


def _talked(plan: ClusterPlan, kind: Security) -> Talk:
    key = None if kind == "off" else ClusterKey.generate()
    given = "-" if key is None else key.secret.hex()
    echo = subprocess.Popen(
        [sys.executable, "-m", "hotrow.bench.cluster.talk", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert echo.stdin is not None
    assert echo.stdout is not None
    try:
        echo.stdin.write(given + "\n")  # not as an argument, which all users of the machine can read
        echo.stdin.flush()
        address = echo.stdout.readline().strip()
        if not address:
            raise HotrowError("the other side of the wire did not start")
        with RpcClient(security=kind, key=key) as wire:
            wire.connect("echo", address)
            small = [_seconds(wire, []) for _ in range(plan.messages)]
            frame = np.zeros(plan.large_bytes, np.uint8)
            large = [_seconds(wire, [frame]) for _ in range(LARGE)]
            wire.request("echo", Stop()).result()
    finally:
        echo.stdin.close()
        echo.stdout.close()
        echo.kill()
        echo.wait()
    return Talk(float(np.median(small)), 2 * plan.large_bytes / float(np.median(large)))


def _seconds(wire: RpcClient, frames: list[np.ndarray]) -> float:
    began = time.perf_counter()
    wire.request("echo", Query("ready"), frames).result()
    return time.perf_counter() - began


def _echo(kind: Security) -> None:
    """The other side: gives frames back as they came, until it is told to stop."""
    given = sys.stdin.readline().strip()
    server = RpcServer(
        "tcp://127.0.0.1:*", security=kind, key=None if given == "-" else ClusterKey(bytes.fromhex(given)), name="echo"
    )
    print(server.address, flush=True)

    def handle(request: Request) -> None:
        request.reply(Done(), request.frames)
        if isinstance(request.message, Stop):
            server.stop()

    server.serve(handle)
    server.close()


if __name__ == "__main__":
    _echo(next(kind for kind in KINDS if kind == sys.argv[1]))
