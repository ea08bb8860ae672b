"""Rings between processes, one of which is killed, or is in a container of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Done
from hotrow.transport.server import Request
from unit.transport.parts import HASTY, KEY, READY, answer_of, running, until, wire_to
from unit.transport.ring_peer import NBYTES
from unit.transport.test_ring_connections import mapped, ringed, watched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd and /proc are of Linux")

FRAME = np.random.default_rng(0).integers(0, 256, NBYTES, dtype=np.uint8)


@contextmanager
def peer(*arguments: str, before: Sequence[str] = ()) -> Iterator["subprocess.Popen[str]"]:
    program = str(Path(__file__).with_name("ring_peer.py"))
    process = subprocess.Popen([*before, sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def address_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wire_through(address: str) -> RpcClient:
    wire = RpcClient(security="key", key=KEY, retry=HASTY)
    wire.connect("shard", address)
    return wire


def left_behind() -> list[str]:
    return [each for each in os.listdir("/dev/shm") if "ring" in each]


def test_a_client_that_is_killed_while_it_sends_leaves_nothing() -> None:
    kept: list[memoryview] = []

    def handle(request: Request) -> None:
        if server.counts.ring_bytes_in > 0 and len(kept) < 3:
            kept.extend(request.frames)
        request.reply(Done(), request.frames)

    with running(handle=handle) as server:
        with peer("ask", server.address) as client:
            until(lambda: server.counts.ring_bytes_in > 20 * NBYTES)
            client.kill()
            until(lambda: watched(server) == 0)
        assert all(set(frame[::4096]) == {7} for frame in kept)  # requests in hand stay readable
        assert mapped() == 1
        kept.clear()
        until(lambda: mapped() == 0)  # the reply that was being sent is gone too
        assert left_behind() == []
        with ringed(wire_to(server)) as wire:
            assert answer_of(wire.request("shard", READY, [FRAME])).frames == [FRAME.tobytes()]
            assert wire.counts.ring_bytes_in == NBYTES


def test_a_server_that_is_killed_while_it_replies_leaves_nothing_and_its_successor_gets_new_rings() -> None:
    with peer("serve", "*") as first:
        address = address_of(first)
        with wire_through(address) as wire:
            futures = [wire.request("shard", READY, [FRAME]) for _ in range(32)]
            until(lambda: wire.counts.ring_bytes_in > 4 * NBYTES)
            first.kill()
            first.wait()  # its port is free
            until(lambda: watched(wire) == 0)
            with running(bind=address):
                for future in futures:
                    assert answer_of(future).frames == [FRAME.tobytes()]
                del future
                futures.clear()
                assert answer_of(wire.request("shard", READY, [FRAME])).frames == [FRAME.tobytes()]
                assert (wire.counts.rings, watched(wire)) == (2, 1)
                until(lambda: mapped() == 2)  # both ends of the new one
        assert left_behind() == []


def test_a_server_in_another_container_gets_no_ring_and_answers() -> None:
    """A namespace of pids of its own: the process of the client does not exist there, or is another one."""
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("unshare is not allowed here")
    with peer("serve", "*", before=apart) as server, wire_through(address_of(server)) as wire:
        ringed(wire)
        assert answer_of(wire.request("shard", READY, [FRAME])).frames == [FRAME.tobytes()]
        assert (wire.counts.rings, wire.counts.rings_refused, mapped()) == (0, 1, 0)
