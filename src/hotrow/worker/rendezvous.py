"""The rendezvous of the ranks of an all-reduce mode: a store on the first rank's host, and gloo between the hosts.

Both bind to the trainer's own host, the one its server listens on, and to no other address. Neither uses a key.

A rank that is lost while the others meet must not keep them: every wait ends when the meeting is abandoned. Waits in
this file look for it; those inside gloo are for keys of the store, whose server the first rank closes, or for
connections, which have a timeout.
"""

import socket
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch.distributed import HashStore, Store, TCPStore  # type: ignore[attr-defined]  # public, not marked as exported

from hotrow.errors import ConfigError, InputError
from hotrow.transport.errors import RanksLost

BACKEND = "hotrow_gloo"
MEETING = timedelta(seconds=120)  # for all ranks to come
ATTEMPT = timedelta(seconds=1)  # to reach the store, once
CONNECTING = timedelta(seconds=30)  # for gloo, when all ranks are there
COLLECTIVE = timedelta(hours=24)  # one rank's batch may take long; the driver notices a lost rank
WAKE_S = 0.02


def serve_store(host: str, port: int, listening: socket.socket) -> TCPStore:
    """The server of the store, which takes over a socket."""
    descriptor = listening.fileno()
    server = partial(
        TCPStore, host, port, is_master=True, timeout=MEETING, wait_for_workers=False, master_listen_fd=descriptor
    )
    try:
        store = server()
    except NotImplementedError:  # torch 2.6: its default server, on libuv, listens only on a socket of its own
        store = server(use_libuv=False)
    listening.detach()
    return store


def gloo_options(devices: list[Any], timeout: timedelta) -> Any:
    """Options of gloo with these devices; never without, since gloo would then listen where it chooses.

    Torch has no public name for them: in 2.13 `Options` is inherited and has no devices, whatever its stub says.
    """
    for made, field in (("_Options", "_devices"), ("Options", "devices")):
        try:
            options = getattr(dist.ProcessGroupGloo, made)()
        except (AttributeError, TypeError):
            continue
        if hasattr(options, field):
            setattr(options, field, devices)
            options._timeout = timeout
            return options
    message = f"torch {torch.__version__}: hotrow does not know how to bind its gloo to one host"
    raise ConfigError(f"{message}: install torch 2.13, or train in a mode without collectives, as gba")


class Rendezvous:
    """One trainer's part, on its own host."""

    def __init__(self, host: str, device: str = "cpu") -> None:
        self._host, self._device = host, device
        self._listening: socket.socket | None = None
        self._server: TCPStore | None = None  # of the store, on the first rank
        self._abandoned: str | None = None  # the last meeting that will not take place

    def listen(self) -> int:
        """Open a port for the other ranks, as the first rank."""
        self._close()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listening = socket.create_server((self._host, 0), family=family)
        return int(self._listening.getsockname()[1])

    def init(self, where: str, rank: int, ranks: int) -> None:
        """Connect to the other ranks, at the host and port of the first one. RanksLost where they do not come."""
        place = urlsplit(where)
        if place.hostname is None or place.port is None:
            raise InputError(f"meeting={where!r}: must be tcp://host:port")
        if rank == 0:
            self._server = serve_store(place.hostname, place.port, self._listening_at(place.port))
        dist.Backend.register_backend(BACKEND, self._gloo, devices=["cpu"])
        backends = BACKEND if self._device == "cpu" else f"cpu:{BACKEND},{self._device}:nccl"
        try:
            store = self._connected(where, place.hostname, place.port)
            self._await_ranks(where, store, rank, ranks)
            dist.init_process_group(backends, store=store, rank=rank, world_size=ranks, timeout=COLLECTIVE)
        except (RuntimeError, ValueError) as error:  # of torch: a rank has ended, or the store of the first one
            self._server = None
            self._restart_group_names()
            raise RanksLost(f"the ranks did not meet: {error}") from error
        except RanksLost:
            self._server = None
            raise

    def abandon(self, where: str) -> None:
        """End a meeting, now or as soon as it begins: a rank does not come. In any thread."""
        self._abandoned = where
        self._server = None

    def _connected(self, where: str, host: str, port: int) -> TCPStore:
        """A client of the store; its server may not have started."""
        until = time.monotonic() + MEETING.total_seconds()
        while True:
            self._check_expected(where, until)
            with suppress(RuntimeError):  # the class of a refused connection differs between versions of torch
                store = TCPStore(host, port, is_master=False, timeout=ATTEMPT, wait_for_workers=False)
                store.set_timeout(MEETING)
                return store

    def _await_ranks(self, where: str, store: TCPStore, rank: int, ranks: int) -> None:
        """Wait until all ranks are there. What follows takes milliseconds, and cannot be interrupted everywhere."""
        until = time.monotonic() + MEETING.total_seconds()
        store.set(f"here/{rank}", "")
        while not store.check([f"here/{each}" for each in range(ranks)]):
            self._check_expected(where, until)
            time.sleep(WAKE_S)

    def _check_expected(self, where: str, until: float) -> None:
        if self._abandoned == where:
            raise RanksLost(f"the meeting at {where} was abandoned")
        if time.monotonic() > until:
            raise RanksLost(f"not all ranks came to {where} within {MEETING.total_seconds():.0f} s")

    def _restart_group_names(self) -> None:
        """Torch numbers groups in each process, and ranks with different numbers never find each other.

        A group that failed has used a number. The end of a group that did not fail starts again from 0.
        """
        if dist.is_initialized():
            return
        dist.init_process_group(BACKEND, store=HashStore(), rank=0, world_size=1)
        dist.destroy_process_group()

    def close(self) -> None:
        """Release everything: the trainer ends."""
        self._close()
        self.destroy()

    def destroy(self) -> None:
        """Leave the group: the mode ends. The port for the next one may be open already."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self._server = None

    def _listening_at(self, port: int) -> socket.socket:
        listening, self._listening = self._listening, None
        if listening is None or listening.getsockname()[1] != port:
            self._listening = listening
            raise InputError(f"meeting: the first rank does not listen at port {port}, query its port first")
        return listening

    def _gloo(self, store: Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroupGloo:
        settable = hasattr(dist.ProcessGroupGloo, "set_timeout")  # since torch 2.13
        device = dist.ProcessGroupGloo.create_device(hostname=self._host)
        group = dist.ProcessGroupGloo(store, rank, size, gloo_options([device], CONNECTING if settable else timeout))
        if settable:
            group.set_timeout(timeout)
        return group

    def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
