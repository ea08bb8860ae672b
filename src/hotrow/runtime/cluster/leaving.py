"""The end of a role that leaves in good order."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress

from hotrow.errors import InputError
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.errors import PeerLost
from hotrow.worker.exchange_queue import when_all


def uncancellable_future() -> "Future[None]":
    """Something that will come true, and that nobody can cancel."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def forget_when_stopped(wire: RpcClient, name: str, asked: "Sequence[Future[Answer]]", left: "Future[None]") -> None:
    """Forget a role that was told to stop, once it has and others that had to hear of it have; then `left` is done."""

    def parted(fault: BaseException | None) -> None:
        if fault is not None and not isinstance(fault, PeerLost):  # a lost one is gone, too
            left.set_exception(fault)
            return
        with suppress(InputError):  # the wire is closed: it knows nobody any more
            wire.forget(name)
        left.set_result(None)

    when_all(asked, parted)
