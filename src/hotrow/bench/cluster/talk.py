"""The wire by itself: a round trip and a large frame over loopback TCP, under each kind of security."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.errors import HotrowError
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.limits import Limits
from hotrow.transport.messages import Done, Query
from hotrow.transport.request import Request
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import RpcServer
from hotrow.types import Security

KINDS: tuple[Security, ...] = ("off", "key", "curve")
LARGE = 24  # frames there and back
TCP = Limits(ring_bytes=0)  # no shared memory


@dataclass(frozen=True, slots=True)
class Talk:
    """What the bound of a mode needs to know of the wire."""

    round_trip_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class EchoProcess:
    """Another process that gives back what it is sent."""

    address: str
    security: Security
    key: ClusterKey | None

    @contextmanager
    def client(self, limits: Limits | None = None) -> Iterator[RpcClient]:
        """A client whose connection is complete."""
        with RpcClient(security=self.security, key=self.key, limits=limits) as wire:
            wire.connect("echo", self.address)
            ask(wire)
            yield wire


def measure(plan: ClusterPlan, watch: BenchProgress) -> tuple[Figures, Talk]:
    """Rates under each kind, and those of `key`, which is what clusters use unless told otherwise."""
    watch.stage("the wire by itself", len(KINDS))
    found: Figures = {}
    talks = {}
    for kind in KINDS:
        with echo_process(kind) as echo, echo.client(TCP) as wire:
            talks[kind] = talk = _rates(plan, wire)
        found |= {f"wire_{kind}_round_trip_ms": 1e3 * talk.round_trip_s, f"wire_{kind}_gibps": talk.bytes_per_s / 2**30}
        watch.tick()
    return found, talks["key"]


@contextmanager
def echo_process(kind: Security) -> Iterator[EchoProcess]:
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
        yield EchoProcess(address, kind, key)
    finally:
        echo.stdin.close()
        echo.stdout.close()
        echo.kill()
        echo.wait()


def ask(wire: RpcClient, frames: Sequence[np.ndarray] = ()) -> Answer:
    return wire.request("echo", Query("ready"), frames).result()


def _rates(plan: ClusterPlan, wire: RpcClient) -> Talk:
    small = [_seconds(wire, []) for _ in range(plan.messages)]
    frame = np.zeros(plan.large_bytes, np.uint8)
    large = [_seconds(wire, [frame]) for _ in range(LARGE)]
    return Talk(float(np.median(small)), 2 * plan.large_bytes / float(np.median(large)))


def _seconds(wire: RpcClient, frames: list[np.ndarray]) -> float:
    began = time.perf_counter()
    ask(wire, frames)
    return time.perf_counter() - began


def _echo(kind: Security) -> None:
    """The other side: gives frames back as they came, until its input ends."""
    given = sys.stdin.readline().strip()
    server = RpcServer(
        "tcp://127.0.0.1:*", security=kind, key=None if given == "-" else ClusterKey(bytes.fromhex(given)), name="echo"
    )
    print(server.address, flush=True)

    def handle(request: Request) -> None:
        request.reply(Done(), request.frames)

    def stop() -> None:
        sys.stdin.read()  # until the benchmark closes it, or ends
        server.stop()

    threading.Thread(target=stop, daemon=True).start()
    server.serve(handle)
    server.close()


if __name__ == "__main__":
    _echo(next(kind for kind in KINDS if kind == sys.argv[1]))
