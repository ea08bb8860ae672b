"""The rendezvous of the ranks of an all-reduce mode: a store on the first rank's host, and gloo between the hosts.

Both bind to the trainer's own host, the one its server listens on, and to no other address. Neither uses a key.
"""

import socket
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # public, but not marked as exported

from hotrow.errors import ConfigError, InputError

BACKEND = "hotrow_gloo"
MEETING = timedelta(seconds=120)  # for all ranks to connect
COLLECTIVE = timedelta(hours=24)  # one rank's batch may take long; the driver notices a lost rank


def open_store(host: str, port: int, ranks: int, listening: socket.socket | None) -> TCPStore:
    """The store at host and port: its server where `listening` is given, whose socket it takes over, else a client."""
    if listening is None:
        return TCPStore(host, port, ranks, is_master=False, timeout=MEETING)
    descriptor = listening.fileno()
    server = partial(TCPStore, host, port, ranks, is_master=True, timeout=MEETING, master_listen_fd=descriptor)
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

    def listen(self) -> int:
        """Open a port for the other ranks, as the first rank."""
        self._close()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listening = socket.create_server((self._host, 0), family=family)
        return int(self._listening.getsockname()[1])

    def init(self, where: str, rank: int, ranks: int) -> None:
        """Connect to the other ranks, at the host and port of the first one."""
        place = urlsplit(where)
        if place.hostname is None or place.port is None:
            raise InputError(f"meeting={where!r}: must be tcp://host:port")
        listening = None if rank else self._listening_at(place.port)
        store = open_store(place.hostname, place.port, ranks, listening)
        dist.Backend.register_backend(BACKEND, self._gloo, devices=["cpu"])
        backends = BACKEND if self._device == "cpu" else f"cpu:{BACKEND},{self._device}:nccl"
        dist.init_process_group(backends, store=store, rank=rank, world_size=ranks, timeout=COLLECTIVE)

    def close(self) -> None:
        """Release everything: the trainer ends."""
        self._close()
        self.destroy()

    def destroy(self) -> None:
        """Leave the group: the mode ends. The port for the next one may be open already."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _listening_at(self, port: int) -> socket.socket:
        listening, self._listening = self._listening, None
        if listening is None or listening.getsockname()[1] != port:
            self._listening = listening
            raise InputError(f"meeting: the first rank does not listen at port {port}, query its port first")
        return listening

    def _gloo(self, store: Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroupGloo:
        options = gloo_options([dist.ProcessGroupGloo.create_device(hostname=self._host)], timeout)
        return dist.ProcessGroupGloo(store, rank, size, options)

    def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
