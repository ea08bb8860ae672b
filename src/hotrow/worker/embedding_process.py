"""An embedding worker: ids arrive at its server, rows and gradients are exchanged by its client, the calling thread
pools.

Rows are requested as soon as ids arrive. A trainer's request for vectors that are not here yet waits without delaying
others; gradients are answered when all shards have them. Rows of tables with a cache are kept between batches, and get
their gradients here.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from queue import Empty, SimpleQueue

import torch

from hotrow.client.pooled import InFlightPush
from hotrow.client.sharded import PushFacts
from hotrow.config import Table
from hotrow.errors import HotrowError, InputError
from hotrow.sizes import number_text
from hotrow.spec import whole_number
from hotrow.store.tiers import named_tables
from hotrow.transport.client import RpcClient
from hotrow.transport.errors import Busy
from hotrow.transport.faults import fault_of
from hotrow.transport.futures import when_all
from hotrow.transport.ids import WORKERS_MOST, grant_of
from hotrow.transport.messages import (
    BatchAt,
    Done,
    Fault,
    FlushCache,
    Folded,
    ForgetLoader,
    LookUp,
    OpenCaches,
    Pooled,
    PullPooled,
    PushPooled,
    Query,
    QueryReply,
    Release,
    ShardAt,
    Stop,
)
from hotrow.transport.request import Request
from hotrow.transport.server import RpcServer
from hotrow.transport.vectors import pack_vectors, plain_bytes, unpack_gradients
from hotrow.types import RoleId, Values
from hotrow.worker.cache_flush import flush_caches
from hotrow.worker.embedding import BufferedBatch, BufferLimits, EmbeddingBuffers
from hotrow.worker.embedding_lookups import AnyLookup, CachedLookups, LookupResult, lookups_of
from hotrow.worker.id_puller import IdPuller, PulledIds

SWEEP_S = 1.0  # between two searches for expired batches

_log = logging.getLogger("hotrow.worker")


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingSetup:
    """The settings of an embedding worker. All of them can be pickled."""

    tables: Mapping[str, Table]
    number: int  # the first byte of its sample ids
    shards: Sequence[str]  # connection names
    threads: int = 1
    values: Mapping[str, Values] | None = None  # by table, the wire format of rows, vectors and gradients
    bounds: BufferLimits = field(default_factory=BufferLimits)


class EmbeddingServer:
    """Serves one embedding worker. The caller closes server and client."""

    def __init__(self, setup: EmbeddingSetup, server: RpcServer, wire: RpcClient) -> None:
        self.number = whole_number("number", setup.number, 0, WORKERS_MOST - 1)
        self.role = RoleId("embedding worker", self.number)
        self._server, self._wire, self._setup = server, wire, setup
        self._values = dict(setup.values or {})
        tables = named_tables(setup.tables)
        self._buffers = EmbeddingBuffers(self.role, {name: table.dim for name, table in tables.items()}, setup.bounds)
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._rows = lookups_of(tables, wire, setup.shards, setup.values, setup.threads, self._inbox.put)
        self._cached = self._rows if isinstance(self._rows, CachedLookups) else None
        self._opened = 0  # the last opening of caches
        self._dealt_again = 0  # batches whose gradients are in caches, that no flush has told
        self._pulls: dict[int, list[tuple[float, Request]]] = {}  # by sample id, with the time of arrival
        self._pushes: dict[int, list[Request]] = {}
        self._ids = IdPuller(wire, self._inbox.put, self._look_up_pulled)
        self._counting, self._lookups = threading.Lock(), 0  # accepted and not handled
        self._id_bytes = 0  # of ids that were pulled from loaders
        self._swept_s = time.monotonic()
        self._stopping = False

    def serve(self) -> None:
        """Serve until a `Stop` message."""
        torch.set_num_threads(self._setup.threads)
        name = f"embedding-server-{self.number}"
        listening = threading.Thread(target=self._listen, name=name, daemon=True)
        listening.start()
        sweep_s = min(SWEEP_S, self._setup.bounds.keep_s / 4)
        try:
            while not self._stopping:
                with contextlib.suppress(Empty):
                    self._inbox.get(timeout=sweep_s)()
                if time.monotonic() - self._swept_s >= sweep_s:
                    self._sweep()
        finally:
            self._server.stop()
            listening.join()

    # In the server's thread.

    def _listen(self) -> None:
        try:
            self._server.serve(self._handle)
        except BaseException as error:  # this worker cannot be reached any more: it ends with the error
            self._inbox.put(partial(_throw, error))

    def _handle(self, request: Request) -> None:
        if isinstance(request.message, ShardAt):  # at once: the thread that computes may wait for the shard
            self._wire.reconnect(request.message.name, request.message.address)
            self._rows.set_incarnation(request.message.name, request.message.incarnation)
            request.reply(Done())
            return
        if isinstance(request.message, LookUp):
            with self._counting:  # a request on its way from the inbox to the pulls is in neither
                queued = max(self._inbox.qsize() + len(self._ids), self._lookups)
                if queued >= self._setup.bounds.queued:
                    raise Busy(f"{queued} requests are queued here: send ids later")
                self._lookups += 1
        self._inbox.put(partial(self._answer, request))

    # In the thread that computes.

    def _answer(self, request: Request) -> None:
        self._reply_errors([request], partial(self._dispatch, request))
        if isinstance(request.message, LookUp) and request.answered:
            self._count_handled()

    def _count_handled(self) -> None:
        with self._counting:
            self._lookups -= 1

    def _dispatch(self, request: Request) -> None:
        match request.message:
            case LookUp(at=None) as message:
                self._look_up(request, message, request.frames)
            case LookUp(at=BatchAt() as at) as message:
                self._ids.pull(request, message, at)
            case ForgetLoader(loader):
                self._ids.forget(loader)
                request.reply(Done())
            case PullPooled(sample):
                self._pull(request, sample)
            case PushPooled() as push:
                self._push(request, push)
            case Release() as release:
                self._release(release)
                request.reply(Done())
            case OpenCaches() as opening:
                self._open_caches(opening)
                request.reply(Done())
            case FlushCache() as flush:
                self._flush(request, flush)
            case Query():
                request.reply(QueryReply(str(self.role), self.figures()))
            case Stop():
                self._stop(request)
            case other:
                raise InputError(f"an embedding worker does not handle {type(other).__name__}")

    def _look_up_pulled(self, pulled: PulledIds) -> None:
        self._reply_errors([pulled.request], partial(self._look_up_ids, pulled))
        self._count_handled()

    def _look_up_ids(self, pulled: PulledIds) -> None:
        message, frames = pulled.lookup()
        self._id_bytes += sum(frame.nbytes for frame in frames)
        self._look_up(pulled.request, message, frames)

    def _look_up(self, request: Request, message: LookUp, frames: Sequence[memoryview]) -> None:
        kept = self._buffers.take(message, frames, time.monotonic())
        if kept is not None:
            try:
                self._rows.send(message, kept.batch, partial(self._looked, kept))
            except HotrowError as error:
                self._buffers.fail(kept, str(error))
                raise
        request.reply(Done())

    def _looked(self, kept: BufferedBatch, result: LookupResult) -> None:
        """Its rows are here, or could not be read."""
        if not self._buffers.is_kept(kept):
            self._rows.discard(result)
            return
        waiting = [request for _, request in self._pulls.pop(kept.sample, [])]
        try:
            kept.handle = handle = result()
        except HotrowError as error:
            message = f"the rows of sample id {kept.sample:#x}: {error}"
            self._buffers.fail(kept, message)
            self._reply(waiting, _fault_about(error, message))
            return
        for request in waiting:
            self._reply_errors([request], partial(self._give, request, handle))

    def _pull(self, request: Request, sample: int) -> None:
        kept = self._buffers.find(sample, time.monotonic())
        if kept is not None and kept.handle is not None:
            self._give(request, kept.handle)
            return
        waiting = sum(len(each) for each in self._pulls.values())
        if waiting >= self._setup.bounds.waiting:
            raise Busy(f"{waiting} requests wait for vectors: send it again later")
        self._pulls.setdefault(sample, []).append((time.monotonic(), request))

    def _give(self, request: Request, handle: AnyLookup) -> None:
        heads, frames = pack_vectors(handle.outputs, self._values, self._setup.threads)
        counts = self._buffers.counts
        counts["vector_bytes"] += sum(memoryview(frame).nbytes for frame in frames)
        counts["vector_plain_bytes"] += plain_bytes(heads)
        request.reply(Pooled(handle.samples, heads), frames)

    def _push(self, request: Request, push: PushPooled) -> None:
        sample = push.sample
        if (before := self._buffers.outcome(sample)) is not None:
            self._buffers.counts["again"] += 1
            request.reply(before)
            return
        kept = self._buffers.find(sample, time.monotonic())
        if kept is None or kept.handle is None:
            raise InputError(f"gradients of sample id {sample:#x}: its vectors were not pulled yet, pull them first")
        if kept.pushing:
            self._buffers.counts["again"] += 1
            self._pushes[sample].append(request)
            return
        handle = kept.handle
        unpack_gradients(push.parts, request.frames, handle.outputs, self._setup.threads)
        facts = PushFacts(grant_of(sample), push.worker, push.token, push.pulled_step, push.arrival)
        self._buffers.counts["gradient_bytes"] += sum(frame.nbytes for frame in request.frames)
        self._buffers.counts["gradient_plain_bytes"] += plain_bytes(push.parts)
        kept.pushing, self._pushes[sample] = True, [request]
        try:
            asked = self._rows.push(handle, facts)
        except HotrowError as error:
            del self._pushes[sample]
            kept.pushing = False
            self._rows.release(handle)
            self._buffers.fail(kept, str(error))
            raise
        when_all(asked.asked, lambda fault: self._inbox.put(partial(self._pushed, kept, asked, fault)))

    def _pushed(self, kept: BufferedBatch, asked: InFlightPush, fault: BaseException | None) -> None:
        """Its gradients are on all shards and in caches, or were refused by a shard."""
        waiting = self._pushes.pop(kept.sample, [])
        try:
            if fault is not None:
                raise fault
            outcome = Folded(tuple(asked.taken()), asked.changed_rows)
        except HotrowError as error:
            message = f"the gradients of sample id {kept.sample:#x}: {error}"
            self._buffers.fail(kept, message)
            self._reply(waiting, _fault_about(error, message))
            return
        self._buffers.finish(kept, outcome)
        for request in waiting:
            request.reply(outcome)

    def _release(self, release: Release) -> None:
        """Their gradients will not arrive, or are applied already."""
        if release.dealt_again and self._cached is not None:  # else the shards count them
            self._dealt_again += self._buffers.pushed(release.samples)
        self._leave_rows(self._buffers.release(release.samples))
        for sample in release.samples:  # requests for vectors may wait for ids that will not arrive either
            self._refuse(sample, "it was released")

    def _leave_rows(self, dropped: Sequence[BufferedBatch]) -> None:
        """Their rows are not in use any more; those of lookups in flight are when these end (`_looked`)."""
        for kept in dropped:
            if kept.handle is not None:
                self._rows.release(kept.handle)

    def _open_caches(self, opening: OpenCaches) -> None:
        """A mode begins. Batches of the one before are not computed any more: their rows go with the caches."""
        if self._cached is None or opening.number == self._opened:
            return
        self._opened = opening.number
        for kept in self._buffers.release_all():
            self._refuse(kept.sample, "its mode has ended")
        self._cached.reset(opening.workers)

    def _flush(self, request: Request, flush: FlushCache) -> None:
        """In a thread of its own: vectors of batches in flight are given meanwhile."""
        tables = None if self._cached is None else self._cached.tables
        dealt_again = self._dealt_again

        def act() -> None:
            flushed = flush_caches(tables, flush, {"rows_applied_twice": dealt_again})
            self._inbox.put(partial(self._told_dealt_again, dealt_again))  # before the next flush can come
            request.reply(flushed)

        threading.Thread(target=self._reply_errors, args=([request], act), name="cache-flush", daemon=True).start()

    def _told_dealt_again(self, batches: int) -> None:
        self._dealt_again -= batches

    def _sweep(self) -> None:
        now = self._swept_s = time.monotonic()
        keep_s = number_text(self._setup.bounds.keep_s)
        expired = self._buffers.expire(now)
        self._leave_rows(expired)
        for kept in expired:
            self._refuse(kept.sample, f"no message about it came for {keep_s} s")
        late = now - self._setup.bounds.keep_s
        for sample, waiting in list(self._pulls.items()):
            gone = [request for since_s, request in waiting if since_s <= late]
            self._buffers.counts["waited_in_vain"] += len(gone)
            self._reply_fault(gone, f"the ids of sample id {sample:#x} did not arrive")
            self._pulls[sample] = [each for each in waiting if each[0] > late]
            if not self._pulls[sample]:
                del self._pulls[sample]

    def _refuse(self, sample: int, why: str) -> None:
        """Answer the requests that wait for a dropped batch."""
        waiting = [request for _, request in self._pulls.pop(sample, [])]
        self._reply_fault(waiting, f"{self.role} has dropped sample id {sample:#x}: {why}")

    def _stop(self, request: Request) -> None:
        waiting = [each for pulls in self._pulls.values() for _, each in pulls]
        waiting += [each for pushes in self._pushes.values() for each in pushes]
        waiting += self._ids.clear()
        self._pulls.clear()
        self._pushes.clear()
        for each in waiting:
            each.reply(Fault("closing", f"{self.role} is stopping"))
        self._stopping = True
        request.reply(Done())

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        traffic = self._rows.traffic
        caches = {} if self._cached is None else self._cached.tables.figures()
        rows = {"row_bytes": traffic.sent + traffic.received, "row_plain_bytes": traffic.plain}
        now = {"number": self.number, "waiting": sum(len(each) for each in self._pulls.values()), **rows}
        now["id_bytes"] = self._id_bytes
        wire = {f"wire.{name}": float(count) for name, count in asdict(self._server.counts).items()}
        asks = {f"asks.{name}": float(count) for name, count in asdict(self._wire.counts).items()}
        counted = {name: float(value) for name, value in now.items()}
        return {**self._buffers.figures(), **counted, **caches, **wire, **asks}

    def _reply_errors(self, requests: Sequence[Request], act: Callable[[], None]) -> None:
        """Answer the requests with the error where the action fails."""
        try:
            act()
        except HotrowError as error:
            self._reply(requests, fault_of(error))
        except Exception as error:  # a bug of ours: the worker continues, and the sender gets the error
            _log.exception("%s failed", self.role)
            self._reply_fault(requests, f"{self.role}: {type(error).__name__}: {error}")

    def _reply_fault(self, requests: Sequence[Request], sentence: str) -> None:
        self._reply(requests, Fault.of("internal", sentence))

    def _reply(self, requests: Sequence[Request], fault: Fault) -> None:
        for request in requests:
            if not request.answered:
                request.reply(fault)


def _fault_about(error: HotrowError, message: str) -> Fault:
    """A sentence about an error. The driver survives a lost role, and has to hear that it is the cause."""
    return Fault.of("lost" if fault_of(error).kind == "lost" else "internal", message)


def _throw(error: BaseException) -> None:
    raise error
