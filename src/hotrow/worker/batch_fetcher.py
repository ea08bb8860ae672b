"""Batches that a trainer pulls from loaders: each is requested at once, and begun in the order of the requests."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from hotrow.data.batch import Batch
from hotrow.loading.service import LoaderService
from hotrow.transport.batches import unpack_batch
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.messages import BatchAt, BatchGiven, PullBatch
from hotrow.transport.request import Request
from hotrow.types import RoleId
from hotrow.worker.reply_errors import reply_errors

JOIN_S = 1.0

Begin: TypeAlias = Callable[[Batch], None]
Pulled: TypeAlias = tuple[Request, BatchAt, bool, Begin, Future[Answer] | None]


class BatchFetcher:
    """A thread that waits for pulled batches: neither the server nor the client does other work meanwhile.

    Batches of this process's own loader are taken from it without a copy.
    """

    def __init__(self, role: RoleId, wire: RpcClient, own: LoaderService) -> None:
        self._role, self._wire, self._own = role, wire, own
        self._pulled: SimpleQueue[Pulled | None] = SimpleQueue()
        self._connected: set[str] = set()  # loaders
        self._thread = threading.Thread(target=self._run, name="trainer-batches", daemon=True)
        self._thread.start()

    def fetch(self, request: Request, at: BatchAt, begin: Begin, *, ids: bool) -> None:
        """Pull the batch of a request, with or without its ids, then call `begin` with it."""
        asked = None
        if at.loader != self._role:
            self._wire.connect(at.loader, at.address, near=True)
            self._connected.add(at.loader)
            pull = PullBatch(at.reading, at.epoch, at.index, "all" if ids else "features")
            asked = self._wire.request(at.loader, pull)
        self._pulled.put((request, at, ids, begin, asked))

    def forget(self, loader: str) -> None:
        """Close the connection to a loader that has left."""
        if loader in self._connected:
            self._connected.remove(loader)
            self._wire.forget(loader)

    def close(self) -> None:
        """A pull that is never answered ends with the client."""
        self._pulled.put(None)
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        while (pulled := self._pulled.get()) is not None:
            request, at, ids, begin, asked = pulled
            reply_errors(request, partial(self._begin_pulled, at, ids, begin, asked))

    def _begin_pulled(self, at: BatchAt, ids: bool, begin: Begin, asked: "Future[Answer] | None") -> None:
        if asked is None:
            batch = self._own.batch(at.reading, at.epoch, at.index)
        else:
            answer = asked.result()
            batch = unpack_batch(answer.of(BatchGiven, at.loader).batch, answer.frames, ids=ids)
        begin(batch)
