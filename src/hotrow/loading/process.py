"""A loader in a process of its own, behind a socket. The calling thread answers; a thread reads."""

from dataclasses import asdict

from hotrow.errors import InputError
from hotrow.loading.service import FetchSource, LoaderService
from hotrow.transport.messages import Done, Query, QueryReply, Stop
from hotrow.transport.request import Request
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId


class LoaderServer:
    """Serves one loader. The caller closes the server."""

    def __init__(self, role: RoleId, server: RpcServer, fetch: FetchSource) -> None:
        self.role = role
        self._server = server
        self._service = LoaderService(fetch)

    def serve(self) -> None:
        """Serve until a `Stop` message."""
        try:
            self._server.serve(self._handle)
        finally:
            self._service.close()

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        found = self._service.figures()
        wire = {f"wire.{name}": float(count) for name, count in asdict(self._server.counts).items()}
        return {**found, "batches": found["loaded_batches"], "samples": found["loaded_samples"], **wire}

    def _handle(self, request: Request) -> None:
        match request.message:
            case message if self._service.handles(message):
                self._service.handle(request)
            case Query():
                request.reply(QueryReply(str(self.role), self.figures()))
            case Stop():
                request.reply(Done())
                self._server.stop()
            case other:
                raise InputError(f"a loader does not handle {type(other).__name__}")
