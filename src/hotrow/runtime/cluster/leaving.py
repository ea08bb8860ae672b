"""The end of a role that leaves."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress

from hotrow.errors import InputError
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.errors import PeerLost
from hotrow.transport.futures import when_all


def forget_when_stopped(wire: RpcClient, name: str, asked: "Sequence[Future[Answer]]", left: "Future[None]") -> None:
    """Close the connection to a leaving role, once it has stopped and the others know; then `left` is done."""

    def stopped(fault: BaseException | None) -> None:
        if fault is not None and not isinstance(fault, PeerLost):  # a lost role has stopped too
            left.set_exception(fault)
            return
        with suppress(InputError):  # the client is closed already
            wire.forget(name)
        left.set_result(None)

    when_all(asked, stopped)
