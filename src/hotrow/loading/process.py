"""A loader in a process of its own, behind a socket. The calling thread answers; a thread reads."""

from dataclasses import asdict

from hotrow.client.row_hints import RowHints
from hotrow.errors import InputError
from hotrow.loading.service import FetchSource, LoaderService
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Done, Query, QueryReply, ShardAt, Stop
from hotrow.transport.request import Request
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId


class LoaderServer:
    """Serves one loader. The caller closes the server."""

    def __init__(
        self,
        role: RoleId,
        server: RpcServer,
        fetch: FetchSource,
        wire: RpcClient | None = None,
        hints: RowHints | None = None,
    ) -> None:
        """`wire` and `hints`: to the shards, where tables have rows on disk."""
        self.role = role
        self._server, self._wire, self._hints = server, wire, hints
        self._service = LoaderService(fetch, None if hints is None else hints.send)

    def serve(self) -> None:
        """Serve until a `Stop` message."""
        try:
            self._server.serve(self._handle, lambda message, _: self._service.take(message))
        finally:
            self._service.close()

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        found = self._service.figures()
        wire = {f"wire.{name}": float(count) for name, count in asdict(self._server.counts).items()}
        found["hints"] = 0.0 if self._hints is None else float(self._hints.sent)
        return {**found, "batches": found["loaded_batches"], "samples": found["loaded_samples"], **wire}

    def _handle(self, request: Request) -> None:
        match request.message:
            case message if self._service.handles(message):
                self._service.handle(request)
            case ShardAt(name, address):
                if self._wire is not None:
                    self._wire.reconnect(name, address)
                request.reply(Done())
            case Query():
                request.reply(QueryReply(str(self.role), self.figures()))
            case Stop():
                request.reply(Done())
                self._server.stop()
            case other:
                raise InputError(f"a loader does not handle {type(other).__name__}")
