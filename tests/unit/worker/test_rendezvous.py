"""Where ranks meet: on their own hosts only, at a port that nobody else can have taken, and not alone for long."""

import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from hotrow.errors import ConfigError, InputError
from hotrow.transport.errors import RanksLost
from hotrow.worker import rendezvous
from hotrow.worker.rendezvous import COLLECTIVE, Rendezvous, gloo_options, serve_store

HERE = "127.0.0.2"  # a loopback address that nothing takes by default


def listening() -> set[tuple[str, int]]:
    """Where this process listens."""
    mine = set()
    for each in Path("/proc/self/fd").iterdir():
        try:
            mine.add(os.readlink(each))
        except OSError:  # the one that lists them
            continue
    found = set()
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:] + _tcp6():
        _, local, _, state, *_, inode = line.split()[:10]
        if state == "0A" and f"socket:[{inode}]" in mine:
            address, port = local.split(":")
            found.add((address, int(port, 16)))
    return found


def _tcp6() -> list[str]:
    path = Path("/proc/self/net/tcp6")
    return path.read_text().splitlines()[1:] if path.exists() else []


def test_store_and_collectives_listen_on_the_own_host_and_nowhere_else() -> None:
    before = listening()
    meeting = Rendezvous(HERE)
    port = meeting.listen()
    with pytest.raises(OSError, match="in use"):
        socket.create_server((HERE, port))  # it is taken from the moment on it was told
    meeting.init(f"tcp://{HERE}:{port}", 0, 1)
    try:
        ones = torch.ones(3)
        dist.all_reduce(ones)
        assert ones.tolist() == [1, 1, 1]
        there = listening() - before
        assert ("0200007F", port) in there
        assert {address for address, _ in there} == {"0200007F"}
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port))
    finally:
        meeting.close()
    assert not dist.is_initialized()


def test_a_meeting_that_nobody_listens_for_is_refused() -> None:
    meeting = Rendezvous(HERE)
    with pytest.raises(InputError, match="the first rank does not listen at port 9, query its port"):
        meeting.init(f"tcp://{HERE}:9", 0, 2)
    port = meeting.listen()
    with pytest.raises(InputError, match=f"the first rank does not listen at port {port + 1}"):
        meeting.init(f"tcp://{HERE}:{port + 1}", 0, 2)
    with pytest.raises(InputError, match="must be tcp://host:port"):
        meeting.init("somewhere", 1, 2)
    meeting.close()


class RenamedOptions:
    """As the stub of torch 2.13 has them."""

    def __init__(self) -> None:
        self.devices: list[object] = []


class OptionsWithoutDevices:
    """As `Options` is in torch 2.13."""

    def __init__(self, backend: str) -> None:
        """No devices."""


def test_gloo_is_bound_to_devices_under_either_name_and_never_left_without(monkeypatch: pytest.MonkeyPatch) -> None:
    device = dist.ProcessGroupGloo.create_device(hostname=HERE)
    assert len(gloo_options([device], COLLECTIVE)._devices) == 1
    monkeypatch.delattr(dist.ProcessGroupGloo, "_Options")
    monkeypatch.setattr(dist.ProcessGroupGloo, "Options", RenamedOptions)
    assert gloo_options([device], COLLECTIVE).devices == [device]
    monkeypatch.setattr(dist.ProcessGroupGloo, "Options", OptionsWithoutDevices)
    with pytest.raises(ConfigError, match=rf"torch {re.escape(torch.__version__)}: .*: install torch 2\.13, or train"):
        gloo_options([device], COLLECTIVE)


def _two(rank: int, ports: Any, folder: str) -> None:
    torch.set_num_threads(1)
    meeting = Rendezvous("127.0.0.1")
    if rank == 0:
        port = meeting.listen()
        ports.put(port)
    else:
        port = ports.get()
    meeting.init(f"tcp://127.0.0.1:{port}", rank, 2)
    told = torch.tensor([float(rank + 1)])
    dist.all_reduce(told)
    Path(folder, f"sum {rank}").write_text(str(told.item()))
    if rank == 1:
        os._exit(3)  # without a word
    try:
        dist.all_reduce(told)
    except RuntimeError as error:
        Path(folder, "error").write_text(str(error))
    meeting.destroy()
    os._exit(0)  # the threads of a broken gloo group may abort the end of the interpreter


def test_a_torch_whose_default_store_takes_no_socket_uses_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    make: Any = rendezvous.__dict__["TCPStore"]

    def as_torch_2_6(*given: Any, master_listen_fd: int, use_libuv: bool = True, **more: Any) -> Any:
        if use_libuv:
            raise NotImplementedError("The libuv TCPStore backend does not support initialization with an listen fd.")
        return make(*given, master_listen_fd=master_listen_fd, use_libuv=use_libuv, **more)

    listening_socket = socket.create_server((HERE, 0))
    port = listening_socket.getsockname()[1]
    with monkeypatch.context() as patched:
        patched.setattr(rendezvous, "TCPStore", as_torch_2_6)
        server = serve_store(HERE, port, listening_socket)
    assert listening_socket.fileno() == -1  # it is the store's now
    server.set("key", "value")
    assert make(HERE, port, is_master=False).get("key") == b"value"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_meeting_is_abandoned_by_ranks_that_wait_and_by_those_that_come_later(rank: int) -> None:
    """Rank 0 waits for another one, rank 1 for the store of the first."""
    meeting = Rendezvous(HERE)
    where = f"tcp://{HERE}:{meeting.listen() if rank == 0 else 9}"
    threading.Timer(0.2, meeting.abandon, (where,)).start()
    with pytest.raises(RanksLost, match=r"abandoned|did not meet"):
        meeting.init(where, rank, 2)
    with pytest.raises((RanksLost, InputError)):
        meeting.init(where, rank, 2)
    assert not dist.is_initialized()
    meeting.init(f"tcp://{HERE}:{meeting.listen()}", 0, 1)  # another one is not
    meeting.close()


def test_a_rank_that_dies_while_gloo_connects_does_not_keep_the_others_from_meeting_again(tmp_path: Path) -> None:
    """It is in the store, and gloo waits for its address: torch has a number for the group that fails then."""
    meeting = Rendezvous("127.0.0.1")
    port = meeting.listen()
    where = f"tcp://127.0.0.1:{port}"

    def come_and_die() -> None:
        store = rendezvous.__dict__["TCPStore"]("127.0.0.1", port, is_master=False, wait_for_workers=False)
        store.set("here/1", "")
        time.sleep(0.3)
        meeting.abandon(where)

    other = threading.Thread(target=come_and_die)
    other.start()
    with pytest.raises(RanksLost, match="the ranks did not meet: "):
        meeting.init(where, 0, 2)
    other.join()
    context = mp.get_context("spawn")
    ports = context.SimpleQueue()
    rank = context.Process(target=_two, args=(1, ports, str(tmp_path)))
    rank.start()
    port = meeting.listen()
    ports.put(port)
    meeting.init(f"tcp://127.0.0.1:{port}", 0, 2)
    ones = torch.ones(1)
    dist.all_reduce(ones)
    assert ones.item() == 3.0
    rank.join(60)
    meeting.close()


def test_ranks_add_up_and_one_that_dies_is_noticed_by_who_waits_for_it(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    ports = context.SimpleQueue()
    ranks = [context.Process(target=_two, args=(rank, ports, str(tmp_path))) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0, 3]
    assert [(tmp_path / f"sum {rank}").read_text() for rank in range(2)] == ["3.0", "3.0"]
    assert (tmp_path / "error").read_text()  # and not after the 24 hours that a batch may take
