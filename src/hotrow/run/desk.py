"""Where an operator reaches a run that goes on: roles join and leave at his word. Both sides of the talk are here.

The desk listens in the process of the run, under the key of its cluster; `cluster.json` says where. What takes time is
done in a thread of its own, so that whoever asks hears that the run is there.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from hotrow.errors import HotrowError, InputError
from hotrow.run.cluster_file import Known
from hotrow.trainer.members import Kind, Members
from hotrow.transport.faults import fault_of
from hotrow.transport.limits import Patience
from hotrow.transport.messages import Ask, Done, Fault, JoinRole, LeaveRole, Message, Told
from hotrow.transport.server import Request, Server
from hotrow.transport.wire import Answer, Wire

SILENT_S = 15.0  # after which an operator is told that the run does not answer

_log = logging.getLogger("hotrow.run")


class FrontDesk:
    """Answers until it is closed."""

    def __init__(self, members: Members, server: Server) -> None:
        self._members, self._server = members, server
        self._open: list[Request] = []  # that are not answered
        self._work = ThreadPoolExecutor(1, "hotrow-desk")
        self._thread = threading.Thread(target=server.serve, args=(self._handle,), name="hotrow-desk", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return self._server.address

    def close(self) -> None:
        """The run ends: whoever waits is told."""
        self._work.shutdown(wait=False, cancel_futures=True)
        for request in list(self._open):
            self._reply(request, Fault("closing", "the run has ended"))
        self._server.close()
        self._thread.join()

    def _handle(self, request: Request) -> None:
        match request.message:
            case JoinRole(kind):
                self._take(request, lambda: self._reply(request, Told(self._members.join(kind), {})))
            case LeaveRole(name):
                left = partial(self._left, request)
                self._take(request, lambda: self._members.leave(name).add_done_callback(left))
            case Ask():
                request.reply(Told("run", {}))
            case other:
                raise InputError(f"a run is not asked for {type(other).__name__}: ask the role that knows it")

    def _take(self, request: Request, act: Callable[[], None]) -> None:
        def answer_faults() -> None:
            try:
                act()
            except HotrowError as error:
                self._reply(request, fault_of(error))
            except Exception as error:  # of Ray's, or of ours: whoever asked must not wait for ever
                _log.exception("a wish about roles failed")
                self._reply(request, Fault.of("internal", f"{type(error).__name__}: {error}"))

        self._open.append(request)
        self._work.submit(answer_faults)

    def _left(self, request: Request, done: "Future[None]") -> None:
        fault = done.exception()
        self._reply(request, Done() if fault is None else Fault.of("input", str(fault)))

    def _reply(self, request: Request, message: Message) -> None:
        with suppress(ValueError):
            self._open.remove(request)
        with suppress(InputError):  # the run has ended meanwhile, and said so
            request.reply(message)


def let_join(known: Known, kind: Kind) -> str:
    """One more role of a run that goes on; gives its name."""
    return _asked(known, JoinRole(kind)).of(Told, "run").role


def let_leave(known: Known, name: str) -> None:
    """A role less; comes back when it has stopped."""
    _asked(known, LeaveRole(name))


def _asked(known: Known, message: Message) -> Answer:
    if known.desk is None:
        raise InputError(f"{known.folder}: cluster.json does not say where the run listens: is it of another version?")
    patience = Patience(first_s=SILENT_S / 10, most_s=SILENT_S / 3, give_up_s=SILENT_S)
    with Wire(security=known.facts.security, key=known.facts.key, patience=patience) as wire:
        wire.connect("run", known.desk)
        return wire.ask("run", message).result()
