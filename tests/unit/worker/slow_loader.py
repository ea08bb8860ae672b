"""A loader whose replies a test sends, behind a real socket."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue

from hotrow.transport.request import Request
from hotrow.transport.server import RpcServer
from unit.worker.embedding_threads import in_thread


@dataclass(slots=True)
class SlowLoader:
    """A loader that answers when the test says so."""

    address: str
    asked: "SimpleQueue[Request]" = field(default_factory=SimpleQueue)

    def next(self) -> Request:
        return self.asked.get(timeout=20)


@contextmanager
def slow_loader() -> Iterator[SlowLoader]:
    with ExitStack() as stack:
        server = stack.enter_context(RpcServer(security="off"))
        loader = SlowLoader(server.address)
        in_thread(stack, lambda: server.serve(loader.asked.put), server.stop)
        yield loader
