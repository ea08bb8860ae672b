"""The control server of a run on a cluster, and its clients: roles join and leave during the run.

The server listens in the process of the run, under the key of its cluster; `cluster.json` holds its address. Slow
requests are handled in threads of their own, so that a client always gets an answer.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from hotrow.errors import HotrowError, InputError
from hotrow.run.cluster_file import Known
from hotrow.trainer.scaling import JoiningKind, RoleScaling
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.faults import fault_of
from hotrow.transport.limits import RetryPolicy
from hotrow.transport.messages import Done, Fault, JoinRole, LeaveRole, Message, Query, QueryReply
from hotrow.transport.server import Request, RpcServer

SILENT_S = 15.0  # without a reply, before the command reports that the run does not answer

_log = logging.getLogger("hotrow.run")


class ControlServer:
    """Answers until it is closed."""

    def __init__(self, members: RoleScaling, server: RpcServer) -> None:
        self._members, self._server = members, server
        self._open: list[Request] = []  # that are not answered
        self._work = ThreadPoolExecutor(1, "hotrow-control_server")
        self._thread = threading.Thread(
            target=server.serve, args=(self._handle,), name="hotrow-control_server", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        return self._server.address

    def close(self) -> None:
        """Answer the open requests with a fault: the run ends."""
        self._work.shutdown(wait=False, cancel_futures=True)
        for request in list(self._open):
            self._reply(request, Fault("closing", "the run has ended"))
        self._server.close()
        self._thread.join()

    def _handle(self, request: Request) -> None:
        match request.message:
            case JoinRole(kind):
                self._take(request, lambda: self._reply(request, QueryReply(self._members.join(kind), {})))
            case LeaveRole(name):
                left = partial(self._left, request)
                self._take(request, lambda: self._members.leave(name).add_done_callback(left))
            case Query():
                request.reply(QueryReply("run", {}))
            case other:
                raise InputError(f"a run does not answer {type(other).__name__}: send it to a role")

    def _take(self, request: Request, act: Callable[[], None]) -> None:
        def answer_faults() -> None:
            try:
                act()
            except HotrowError as error:
                self._reply(request, fault_of(error))
            except Exception as error:  # of Ray's, or of ours: the client must get an answer
                _log.exception("a join or leave request failed")
                self._reply(request, Fault.of("internal", f"{type(error).__name__}: {error}"))

        self._open.append(request)
        self._work.submit(answer_faults)

    def _left(self, request: Request, done: "Future[None]") -> None:
        fault = done.exception()
        self._reply(request, Done() if fault is None else Fault.of("input", str(fault)))

    def _reply(self, request: Request, message: Message) -> None:
        with suppress(ValueError):
            self._open.remove(request)
        with suppress(InputError):  # the run has ended meanwhile, with its own message
            request.reply(message)


def let_join(known: Known, kind: JoiningKind) -> str:
    """Start one more role of a running run; gives its name."""
    return _asked(known, JoinRole(kind)).of(QueryReply, "run").role


def let_leave(known: Known, name: str) -> None:
    """Stop a role; returns when it has stopped."""
    _asked(known, LeaveRole(name))


def _asked(known: Known, message: Message) -> Answer:
    if known.starting:
        raise InputError(
            f"{known.folder}: the cluster is starting: try again when `hotrow cluster status` shows its roles"
        )
    if known.control_server is None:
        raise InputError(f"{known.folder}: cluster.json has no address of the run: is it of another version?")
    retry = RetryPolicy(first_s=SILENT_S / 10, most_s=SILENT_S / 3, give_up_s=SILENT_S)
    with RpcClient(security=known.facts.security, key=known.facts.key, retry=retry) as wire:
        wire.connect("run", known.control_server)
        return wire.request("run", message).result()
