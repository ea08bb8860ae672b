"""A shard behind a socket: unpacks frames, calls the shard, packs its reply. One thread does all of it.

A request that cannot be answered yet does not delay others: a pull waits for the order it names, an order for those
before it, and the rest of a pull in look-ahead for the gradients of the step before.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from hotrow.errors import HotrowError, InputError
from hotrow.server.cache_service import CacheService
from hotrow.server.dense_service import DenseService
from hotrow.server.loading import ShardLoading
from hotrow.server.saving import ShardSaving
from hotrow.server.shard import Pulled, Shard
from hotrow.spec import whole_number
from hotrow.transport.envelope import Buffer
from hotrow.transport.errors import Busy
from hotrow.transport.faults import fault_of
from hotrow.transport.frames import RowBlock, frames_of, pack, unpack
from hotrow.transport.messages import (
    CacheExchange,
    CheckRows,
    Clear,
    CutRows,
    Done,
    EndCut,
    Exchange,
    Exchanged,
    Export,
    Exported,
    Fault,
    FaultKind,
    GiveDense,
    Import,
    LoadAhead,
    LoadRows,
    Message,
    Perform,
    Policy,
    Prepare,
    PullDense,
    PullRest,
    PullRows,
    PushDense,
    Query,
    QueryReply,
    ResumeShard,
    RowBlockHeader,
    Stop,
    TakeDense,
    Taken,
    TrackChanges,
    WriteCut,
)
from hotrow.transport.request import Request
from hotrow.transport.server import RpcServer, refuse_one_way
from hotrow.transport.tensors import joined
from hotrow.transport.whole_rows import STATE_FRAME, pack_rows, unpack_rows
from hotrow.types import RoleId


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    ready: Callable[[], bool]
    request: Request
    answer: Callable[[], None]


class ShardServer:
    """Serves a shard. The caller closes server and shard."""

    def __init__(
        self,
        shard: Shard,
        server: RpcServer,
        dense: DenseService | None = None,
        *,
        waiting_most: int = 1_024,
        restarted: bool = False,
    ) -> None:
        """`dense` holds dense parameters in modes that keep them on shards.

        `restarted`: in place of a process that ended. Requests wait until the driver sends `ResumeShard`.
        """
        self._shard, self._server, self._dense = shard, server, dense
        self._role = RoleId("shard", shard.number)
        self._saving, self._loading, self._caches = ShardSaving(shard), ShardLoading(shard), CacheService(shard)
        self._waiting: list[_Waiting] = []
        self._held: list[Request] | None = [] if restarted else None  # until it resumes
        self._refuses = False  # the open step is cut: a mode will begin
        self._restored = restarted and not shard.attached  # rows that peers have seen are lost
        self._waiting_most = whole_number("waiting_most", waiting_most, 1, 2**31)

    def serve(self) -> None:
        """Serve until a `Stop` message."""
        self._server.serve(self._handle, self._handle_one_way)

    def _handle_one_way(self, message: Message, frames: list[memoryview]) -> None:
        """A message without a reply."""
        if not isinstance(message, LoadAhead):
            refuse_one_way(message, frames)
            return
        self._shard.load_ahead(self._unpacked(message.blocks, frames))

    def _handle(self, request: Request) -> None:
        if self._held is not None and not _answered_at_once(request):
            if len(self._held) >= self._waiting_most:
                raise Busy(f"{self._role} was started again and is not ready: send it again later")
            self._held.append(request)
            return
        match request.message:
            case ResumeShard() as resume:
                self._resume(request, resume)
            case Exchange() | PullRest() | Prepare() if self._refuses and _is_training(request):
                request.reply(Fault("lost", f"{self._role} was started again: the step is cut"))
            case Exchange() as exchange:
                self._exchange(request, exchange)
            case CacheExchange() as exchange:
                self._exchange_cached(request, exchange)
            case Perform() | Policy() as order:
                self._order(request, order)
            case Prepare() as prepared:
                self._prepare(request, prepared)
            case PullRest() as rest:
                self._rest(request, rest)
            case PullDense(after):
                self._pull_dense(request, after)
            case PushDense() as push:
                self._dense_service().push(push, request.frames)
                request.reply(Done())
            case TakeDense() as state:
                self._dense_service().take(state, joined(request.frames))
                request.reply(Done())
            case GiveDense() as wish:
                request.reply(*self._dense_service().give(wish, self._server.limits.frame_bytes))
            case Export(table, cursor, most):
                rows, after = self._shard.export(table, cursor, most)
                request.reply(Exported(after, len(rows.keys), tuple(rows.fields)), pack_rows(rows))
            case Import() as whole:
                self._import(request, whole)
            case Clear(table):
                tier = self._shard.input.tier(table)
                tier.clear()
                tier.forget_waiting()
                request.reply(Done())
            case TrackChanges():
                self._saving.track_changes()
                request.reply(Done())
            case CutRows() as cut:
                if self._is_meant(request, cut.incarnation):
                    request.reply(self._saving.begin(cut))
            case WriteCut() as wanted:
                self._saving.write(request, wanted)
            case EndCut(saved):
                self._saving.end(saved=saved)
                request.reply(Done())
            case CheckRows() | LoadRows() as wanted:
                if self._is_meant(request, wanted.incarnation):
                    self._loading.start(request, wanted)
            case Query(what):
                request.reply(QueryReply(str(self._role), self._figures(what == "status")))
            case Stop():
                self._stop(request)
            case other:
                raise InputError(f"a shard does not handle {type(other).__name__}: send it to another role")

    def _exchange(self, request: Request, exchange: Exchange) -> None:
        push, pull = exchange.push, exchange.pull
        if push is None and pull is None:
            request.reply(
                Exchanged(self._shard.incarnation, newest=self._shard.pushes.newest, samples=self._shard.tables.samples)
            )
            return
        if not self._is_meant(request, exchange.incarnation):
            return
        cut = 0 if push is None else frames_of(push.blocks)
        push_blocks = self._unpacked(() if push is None else push.blocks, request.frames[:cut])
        pull_blocks = self._unpacked(() if pull is None else pull.blocks, request.frames[cut:])
        taken, pulled = self._shard.exchange(push, push_blocks, pull, pull_blocks)
        if pull is None or pulled is not None:
            self._reply(request, taken, pull, pulled)
            self._go_on()  # the rest of a pull may have waited for the push, a pull ahead for this one
            return
        self._go_on()
        self._check_room()  # after the push was taken: requests that wait may need it, and it counts once
        self._wait(
            partial(self._shard.can_read, pull),
            request,
            lambda: self._reply(request, taken, pull, self._shard.pull(pull, pull_blocks)),
        )

    def _exchange_cached(self, request: Request, exchange: CacheExchange) -> None:
        if self._is_meant(request, exchange.incarnation):
            request.reply(*self._caches.answer(exchange, request.frames))

    def _resume(self, request: Request, resume: ResumeShard) -> None:
        """The driver has told how far the process before came."""
        if self._held is not None:
            self._shard.resume(resume)
            if self._dense is not None:
                self._dense.resume(resume, self._shard.updates.late)
            self._refuses = resume.refuses
        request.reply(Done())
        held, self._held = self._held or [], None
        for each in held:
            try:
                self._handle(each)
            except HotrowError as error:  # of the request that was held, not of the current one
                each.reply(fault_of(error))
        self._go_on()

    def _prepare(self, request: Request, prepared: Prepare) -> None:
        if self._is_meant(request, prepared.incarnation):
            self._shard.prepare(prepared.apply)
            request.reply(Done())
            self._go_on()

    def _rest(self, request: Request, rest: PullRest) -> None:
        if not self._is_meant(request, rest.incarnation):
            return
        if self._shard.rest_is_here(rest.grant):
            self._reply_rest(request, rest.grant)
        else:
            self._check_room()
            self._wait(
                partial(self._shard.rest_is_here, rest.grant), request, partial(self._reply_rest, request, rest.grant)
            )

    def _order(self, request: Request, order: Perform | Policy) -> None:
        if not self._is_meant(request, order.incarnation):
            return
        if order.order <= self._shard.performed + 1:
            self._perform(request, order)
            self._go_on()
        else:
            self._wait(self._performed(order.order - 1), request, lambda: self._perform(request, order))

    def _perform(self, request: Request, order: Perform | Policy) -> None:
        again = order.order <= self._shard.performed
        if isinstance(order, Perform):
            done = self._shard.perform(order.order, order.applies, order.discards, order.expected)
            if self._dense is not None and not again:
                weights, lost = self._dense.perform(order)
                done = self._shard.orders.with_dense(done, weights, lost)
        else:
            done = self._shard.policy(
                order.order,
                order.average,
                order.staleness,
                step=order.step,
                samples=order.samples,
                pushes=order.pushes,
            )
            if self._dense is not None and not again:
                self._dense.begin(order.dense, self._shard.updates.late, order.pushes)
            self._refuse_rests()
            self._refuses = False
        request.reply(done)

    def _pull_dense(self, request: Request, after: int) -> None:
        if after <= self._shard.performed:
            self._give_dense(request)
        else:
            self._check_room()
            self._wait(self._performed(after), request, lambda: self._give_dense(request))

    def _give_dense(self, request: Request) -> None:
        request.reply(*self._dense_service().pulled(self._server.limits.frame_bytes))

    def _dense_service(self) -> DenseService:
        if self._dense is None:
            raise InputError(f"{self._role} holds no dense parameters: the model has none for it")
        return self._dense

    def _refuse_rests(self) -> None:
        """A mode begins: look-ups of the one before are not read any more."""
        for each in [each for each in self._waiting if isinstance(each.request.message, PullRest)]:
            self._waiting.remove(each)
            each.request.reply(Fault("stale", f"{self._role}: the mode of this look-up has ended"))

    def _performed(self, order: int) -> Callable[[], bool]:
        return lambda: order <= self._shard.performed

    def _wait(self, ready: Callable[[], bool], request: Request, answer: Callable[[], None]) -> None:
        request.frames.clear()  # arrays that are still needed hold their memory
        self._waiting.append(_Waiting(ready, request, answer))

    def _go_on(self) -> None:
        """Answer the requests that need not wait any more, and those that waited for them."""
        while (each := next((each for each in self._waiting if each.ready()), None)) is not None:
            self._waiting.remove(each)
            try:
                each.answer()
            except HotrowError as error:  # of the request that waited, not of the current one
                each.request.reply(fault_of(error))

    def _import(self, request: Request, whole: Import) -> None:
        tier = self._shard.input.tier(whole.table)
        stateless = len(request.frames) > STATE_FRAME and not memoryview(request.frames[STATE_FRAME]).nbytes
        state_dim = 0 if stateless else tier.state_dim  # without state rows start with that of new ones
        rows = unpack_rows(whole.rows, whole.fields, request.frames, dim=tier.dim, state_dim=state_dim)
        self._shard.put(whole.table, rows)
        request.reply(Done())

    def _stop(self, request: Request) -> None:
        for each in self._waiting:
            each.request.reply(Fault("closing", f"{self._role} is stopping"))
        self._waiting.clear()
        self._saving.end(saved=False)
        self._loading.end()
        request.reply(Done())
        self._server.stop()

    def _reply(self, request: Request, taken: Taken | None, pull: PullRows | None, pulled: Pulled | None) -> None:
        blocks: tuple[RowBlockHeader, ...] = ()
        frames: list[Buffer] = []
        if pull is not None and pulled is not None:
            blocks, frames = self._packed(pulled, narrow=pull.values == "fp16-scaled")
        absent = 0 if pulled is None else pulled.absent
        request.reply(Exchanged(self._shard.incarnation, taken, absent, blocks), frames)

    def _reply_rest(self, request: Request, grant: int) -> None:
        pulled, values = self._shard.rest(grant)
        blocks, frames = self._packed(pulled, narrow=values == "fp16-scaled")
        request.reply(Exchanged(self._shard.incarnation, blocks=blocks), frames)

    def _packed(self, pulled: Pulled, *, narrow: bool) -> tuple[tuple[RowBlockHeader, ...], list[Buffer]]:
        """`narrow`: the peer accepts 16-bit values; the table's setting decides."""
        blocks: list[RowBlockHeader] = []
        frames: list[Buffer] = []
        for rows in pulled.blocks:
            heads, buffers = pack([rows], self._shard.values.get(rows.table, "fp32") if narrow else "fp32")
            blocks += heads
            frames += buffers
        return tuple(blocks), frames

    def _unpacked(self, blocks: tuple[RowBlockHeader, ...], frames: list[memoryview]) -> list[RowBlock]:
        return unpack(blocks, frames, self._shard.dims, threads=self._shard.tables.threads)

    def _is_meant(self, request: Request, incarnation: int) -> bool:
        """Whether a request is for this incarnation; else the reply is a fault: the rows it knew are lost."""
        if incarnation == self._shard.incarnation:
            return True
        message = f"{self._role} is incarnation {self._shard.incarnation}, asked for is {incarnation}"
        kind: FaultKind = "lost" if self._restored else "stale"
        request.reply(Fault(kind, f"{message}: its rows may have changed, connect again"))
        return False

    def _check_room(self) -> None:
        """Orders are exempt: the others wait for them, and the number of a peer's open requests is bounded."""
        if len(self._waiting) >= self._waiting_most:
            raise Busy(f"{len(self._waiting)} requests wait for orders: send it again later")

    def _figures(self, whole: bool) -> dict[str, float]:
        if not whole:
            found = self._dense is not None and self._dense.found
            return {"ready": 1.0, "incarnation": float(self._shard.incarnation), "dense_found": float(found)}
        wire = {f"wire.{name}": float(count) for name, count in asdict(self._server.counts).items()}
        dense = {} if self._dense is None else self._dense.figures()
        return {**self._shard.figures(), **dense, "waiting": float(len(self._waiting)), **wire}


def _answered_at_once(request: Request) -> bool:
    """Requests that a shard answers before it has resumed: about its state alone.

    Dense parameters that the driver sends are among them: requests that are held read them once it resumes.
    """
    match request.message:
        case ResumeShard() | TakeDense() | Query() | Stop():
            return True
        case Exchange(push=None, pull=None):
            return True
    return False


def _is_training(request: Request) -> bool:
    match request.message:
        case Exchange(push=None, pull=None):
            return False
        case Exchange(push=None, pull=PullRows(learn=False)):
            return False
    return True
