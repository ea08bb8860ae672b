"""Which roles of a cluster read a run's data: its loaders, else its trainers, else the driver."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count

from hotrow.data.loader import Loader
from hotrow.data.reading import AnyBatch, BatchName
from hotrow.data.row_ranges import files_of
from hotrow.errors import InputError
from hotrow.loading.service import file_facts
from hotrow.runtime.cluster.reading import ClusterReading
from hotrow.runtime.cluster.roles import Roles
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.futures import uncancellable_future
from hotrow.transport.messages import ForgetLoader, ForgetSource, PrepareSource
from hotrow.types import RoleId

_log = logging.getLogger("hotrow.runtime")


class ReadingRoles:
    """Prepares the roles that read, and lets a trainer leave that is one of them."""

    def __init__(self, roles: Roles, *, loads_ahead: bool = False) -> None:
        """`loads_ahead`: rows of tables are on disk, and shards are told of those that are needed soon."""
        self._roles, self._loads_ahead = roles, loads_ahead
        self._reading: ClusterReading | None = None  # of the fit under way
        self._prepared = PrepareSource("none", ())
        self._numbers = count(1)
        self._open: list[ClusterReading] = []  # of the fit, and of an evaluation during it
        self._trainers_read = False  # the data of the fit
        roles.on_loss.append(self._lose)

    @contextmanager
    def prepared(self, loader: Loader) -> Iterator[ClusterReading | None]:
        """Send the source of a fit to the roles that read; None where the driver reads, with the reason in the log."""
        with self._opened(loader, required=True) as opened:
            if opened is None:
                yield None
                return
            self._reading, self._prepared = opened
            self._trainers_read = not self._roles.loaders
            try:
                yield self._reading
            finally:
                self._reading, self._trainers_read = None, False

    @contextmanager
    def prepared_for_evaluation(self, loader: Loader) -> Iterator[ClusterReading | None]:
        """The same for an evaluation, also during a fit. No trainer joins or leaves meanwhile."""
        with self._opened(loader, required=False) as opened:
            yield None if opened is None else opened[0]

    @contextmanager
    def _opened(self, loader: Loader, *, required: bool) -> Iterator[tuple[ClusterReading, PrepareSource] | None]:
        """`required`: loaders that cannot read are an error."""
        self.admit_loaders()
        names = list(self._roles.loaders or self._roles.trainers)
        with ExitStack() as stack:
            prepare = self._prepare_all(stack, names, loader, required=required)
            if prepare is None:
                yield None
                return
            names = [name for name in names if name not in self._roles.lost]
            rpc, check_alive = self._roles.rpc, self._roles.check_alive
            window = None
            if required and self._loads_ahead and loader.loads_ahead:  # an evaluation leaves rows where they are
                window = partial(self._window, loader)
            reading = ClusterReading(rpc, check_alive, names, loader, prepare.key, self._numbers, window)
            self._open.append(reading)
            try:
                yield reading, prepare
            finally:
                self._open.remove(reading)
                reading.close()
                self._forget_source(prepare.key)

    def _window(self, loader: Loader) -> int:
        """Batches ahead of the last one handed out: each trainer may take one at a time."""
        return loader.prefetch + len(self._roles.trainers)

    def add_trainer(self, name: RoleId) -> None:
        """Let a trainer that joins read too, where trainers read and it can."""
        if self._reading is None or not self._trainers_read:
            return
        try:
            self._prepare([name], self._prepared)
        except InputError as error:
            _log.warning("%s does not read data: %s", name, error)
            return
        self._reading.join(name)

    def admit_loaders(self) -> None:
        """Let loaders read that were started in place of lost ones; a fit that trainers read goes on without them."""
        while self._roles.new_loaders:
            name = self._roles.new_loaders.popleft()
            if name in self._roles.lost:
                continue
            if self._reading is not None and not self._trainers_read:
                try:
                    self._prepare([name], self._prepared)
                except InputError as error:
                    _log.warning("%s does not read the data of this fit: %s", name, error)
                else:
                    self._reading.join(name)
            if self._roles.shard_restarts is not None:
                self._roles.shard_restarts.tell_all_to(self._roles.rpc, name)
            if name not in self._roles.lost:  # also meanwhile
                self._roles.loaders.append(name)

    def stop_trainer(self, name: RoleId) -> "Future[None]":
        """Stop a trainer once no batch that it has read is needed; the future is done when it has stopped."""
        if self._reading is None or not self._trainers_read or name not in self._roles.trainers:  # its join was refused
            return self._roles.stop_trainer(name)
        stopped = uncancellable_future()
        self._roles.trainers.remove(name)

        def stop(_: "Future[None]") -> None:
            self._forget(name)
            _follow(self._roles.stop_trainer(name), stopped)

        self._reading.leave(name).add_done_callback(stop)
        return stopped

    def current(self, batch: BatchName) -> AnyBatch:
        """The batch of the fit itself, or its copy where the role that has read it is lost."""
        return batch if self._reading is None else self._reading.current(batch)

    def _lose(self, name: RoleId) -> None:
        for reading in self._open:
            reading.lose(name)
        self._forget(name)

    def _forget(self, name: RoleId) -> None:
        """Let the roles that may have pulled batches from a trainer close their connections to it."""
        workers = self._roles.embedding_workers
        for other in (*self._roles.trainers, *(() if workers is None else workers.names)):
            with suppress(InputError):  # that one has left too, or the run ends
                self._roles.rpc.request(other, ForgetLoader(str(name)))

    def _forget_source(self, key: str) -> None:
        for name in (*self._roles.loaders, *self._roles.trainers):
            with suppress(InputError):  # that one has left, or the run ends
                self._roles.rpc.request(name, ForgetSource(key))

    def _prepare_all(
        self, stack: ExitStack, names: list[RoleId], loader: Loader, *, required: bool
    ) -> PrepareSource | None:
        """Store the source, and prepare it on all roles that read; None where the driver has to read."""
        try:
            key = self._store(stack, loader)
        except InputError as error:
            level = logging.WARNING if self._roles.loaders else logging.INFO
            _log.log(level, "the run's own process reads the data: %s", error)
            return None
        prepare = PrepareSource(key, file_facts(files_of(loader.source) or ()))
        try:
            self._prepare(names, prepare)
        except InputError as error:
            self._forget_source(key)
            if self._roles.loaders and required:
                remedy = "give every host the same files, or set loaders = 0"
                raise InputError(f"engine.loaders={len(names)}: {error}: {remedy}") from None
            _log.warning("the run's own process reads the data: %s", error)
            return None
        return prepare

    def _store(self, stack: ExitStack, loader: Loader) -> str:
        if files_of(loader.source) is None:
            raise InputError(f"{type(loader.source).__name__} is not read from files")
        if self._roles.stored_source is None:
            raise InputError("there is no store that could bring the source to other processes")
        return stack.enter_context(self._roles.stored_source(loader.source))

    def _prepare(self, names: list[RoleId], prepare: PrepareSource) -> None:
        """InputError where a role cannot read what this process reads."""
        refused = []
        for name, asked in zip(names, self._roles.request_all(names, prepare), strict=True):
            try:
                self._roles.answer(asked)
            except RemoteFault as fault:  # the others are waited for: what they have prepared can be dropped then
                refused.append(f"{name} cannot: {fault.sentence}")
            except PeerLost:
                if name not in self._roles.lost:
                    raise
        if refused:
            raise InputError(refused[0])


def _follow(first: "Future[None]", then: "Future[None]") -> None:
    """Complete the second future as the first one."""

    def copy(done: "Future[None]") -> None:
        if (error := done.exception()) is not None:
            then.set_exception(error)
        else:
            then.set_result(None)

    first.add_done_callback(copy)
