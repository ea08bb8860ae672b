"""A run on a cluster: where its dense parameters are in each mode, and the way there and back.

At rest the dense state is here. When a mode begins it goes to the trainers, or to the shards where these serve it; when
the mode ends it comes back from the first trainer, or from each shard what that one has served.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.checkpoint import dense as dense_state
from hotrow.client.aggregate import Average
from hotrow.client.sharded import ShardedTables
from hotrow.data.batch import Batch
from hotrow.errors import ConfigError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.clock import RunClock
from hotrow.runtime.cluster.executor import Now, RemoteExecutor
from hotrow.runtime.cluster.remote_parameters import RemoteParameters
from hotrow.runtime.cluster.roles import Roles
from hotrow.server.replicas import k_step_adam
from hotrow.transport.client import Answer
from hotrow.transport.limits import Limits
from hotrow.transport.messages import Begin, DenseGiven, GiveDense, Query, QueryReply, TakeDense
from hotrow.transport.tensors import cut, joined
from hotrow.worker.core import Learner, Loss

IN_FLIGHT_MOST = Limits().open_asks // 4  # a batch in flight has a lookup, a push and some words open at one shard


class ClusterBackend:
    """The `Site` of an engine whose workers are trainers of a cluster."""

    def __init__(
        self,
        model: nn.Module,
        client: ShardedTables,
        optimizer: Optimizer | None,
        roles: Roles,
        now: Now,
        *,
        places: Mapping[str, Sequence[int]],
        hosts: Mapping[str, str],
        dismiss: Callable[[str], Future[None]] | None = None,
        loss: Loss | None = None,
        autocast: bool = False,
        average: Average = "batch",
    ) -> None:
        """`places`: by shard, the parameters it serves; `hosts`: where each trainer is, also one that joins later.

        `dismiss` ends a trainer that leaves, where that takes more than a word to it.
        """
        self.optimizer = optimizer
        self.client = client
        self._model, self._roles, self._now, self._average = model, roles, now, average
        self._places, self._hosts = places, hosts
        self._dismiss = roles.dismiss if dismiss is None else dismiss
        self._learner = Learner(model, loss=loss, autocast=autocast)
        self._orders: RemoteParameters | None = None
        self._number = 0  # of the last order
        self._mode: Mode | None = None
        self._executor: RemoteExecutor | None = None
        self._begun: Begin | None = None  # as the first trainer heard it
        self._home = (-1, False)  # the order after which the dense state was brought here, and whether all of it
        self._failed = False

    def check_fit(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where a mode cannot work here."""
        mode.check(facts)
        if mode.most_in_flight > IN_FLIGHT_MOST:
            raise ConfigError(
                f"max_in_flight={mode.most_in_flight}: on a cluster at most {IN_FLIGHT_MOST} batches of a trainer are "
                f"under way, since a role takes {Limits().open_asks:,} asks of a peer at once: take fewer"
            )
        if mode.dense == "local":
            k_step_adam(self.optimizer)
        if mode.dense != "server" and facts.parts % facts.workers:
            fits = [each for each in range(1, facts.parts + 1) if facts.parts % each == 0]
            raise ConfigError(
                f"trainers={facts.workers}: in {mode.name} all trainers take the same share of the {facts.parts} local "
                f"batches of a global batch: take {', '.join(map(str, fits[-8:]))}, or another local_batch"
            )

    def newest_grant(self) -> int:
        """That the shards know, or the segments that they keep rows in."""
        return self._roles.newest_grant()

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[RemoteParameters, RemoteExecutor]:
        """A mode begins."""
        self.check_whole()
        self.check_fit(mode, facts)  # trainers may have come since it was chosen
        home = partial(self._bring_home, optimizer=True)
        trained, _ = self._now()
        orders = RemoteParameters(mode, facts, self._roles, self._number, self._average, trained, home)
        self._number = orders.number  # shards have it, whatever becomes of the rest
        tensors, settings = dense_state.to_bytes(self._model, self.optimizer)
        if mode.dense == "server":
            state = TakeDense(facts.step, settings)
            for asked in self._roles.ask_all(list(self._places), state, self._frames(tensors)):
                self._roles.answer(asked)
        begun = Begin(
            mode.model_dump_json(),
            orders.number,
            facts.step,
            rank=0,
            ranks=facts.workers,
            share=facts.parts // facts.workers,
            local_batch=facts.local_batch,
            trained=trained,
            meeting="" if mode.dense == "server" else self._meeting(),
            optimizer=settings,
            seed=int(torch.randint(2**31, ())),
        )
        told = [self._tell(begun, rank, name, tensors) for rank, name in enumerate(self._roles.trainers)]
        for each in told:
            self._roles.answer(each)
        executor = RemoteExecutor(self._roles, orders, mode, facts, self._now, self._ended)
        self._orders, self._mode, self._executor, self._begun = orders, mode, executor, begun
        return orders, executor

    @property
    def staff(self) -> "ClusterBackend":
        """Trainers come and go."""
        return self

    @property
    def names(self) -> Sequence[str]:
        """Of trainers that take part."""
        return self._roles.trainers

    def welcome(self, name: str) -> None:
        """A trainer that was started and waited."""
        self._roles.trainers.append(name)

    def begin(self, name: str, worker: int, step: int) -> None:
        """The mode at work begins on one more. Dense parameters are on the shards: it reads them for every batch."""
        assert self._orders is not None
        assert self._executor is not None
        assert self._begun is not None
        tensors, settings = dense_state.to_bytes(self._model, self.optimizer)
        trained, _ = self._now()
        begun = replace(self._begun, order=self._orders.number, step=step, trained=trained, optimizer=settings)
        with self._orders.failing():
            self._roles.answer(self._tell(begun, worker, name, tensors))
        self._executor.trainers[worker] = name

    def dismiss(self, name: str) -> Future[None]:
        """A trainer that has nothing to do any more."""
        return self._dismiss(name)

    def _tell(self, begun: Begin, rank: int, name: str, tensors: bytes) -> Future[Answer]:
        return self._roles.wire.ask(name, replace(begun, rank=rank, seed=begun.seed + rank), self._frames(tensors))

    def _frames(self, tensors: bytes) -> list[memoryview]:
        return cut([tensors], self._roles.wire.limits.frame_bytes)

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is made or changed."""
        self.check_whole()
        if self._mode is not None:
            self._bring_home(optimizer=False)
        after = self._number if self._orders is None else self._orders.number
        return self._learner.predict(batch, self.client.lookup(batch, learn=False, after=after))

    def _ended(self) -> None:
        if self._orders is None:
            return
        self._failed = self._orders.failed
        if not self._failed:
            self._bring_home(optimizer=True)
        self._number = self._orders.number
        self._orders = self._mode = self._executor = self._begun = None

    def _bring_home(self, *, optimizer: bool) -> None:
        """As it is after the last order; at rest nothing of it is still on its way."""
        assert self._mode is not None
        assert self._orders is not None
        number = self._orders.number
        if self._home[0] != number or (optimizer and not self._home[1]):
            self._fetch(self._mode, optimizer=optimizer)
            self._home = (number, optimizer)

    def check_whole(self) -> None:
        """After a fault rows and dense parameters are of different steps, and trainers may wait for each other."""
        if self._failed or (self._orders is not None and self._orders.failed):
            raise InputError("the cluster has failed: close this trainer, and load the last checkpoint into another")

    def _fetch(self, mode: Mode, *, optimizer: bool) -> None:
        own = self.optimizer if optimizer else None
        if mode.dense != "server":
            given = self._roles.answer(self._roles.wire.ask(self._roles.trainers[0], GiveDense(optimizer)))
            told = given.of(DenseGiven, self._roles.trainers[0])
            dense_state.from_bytes(joined(given.frames), told.optimizer, self._model, own)
            return
        pieces = []
        for name, places in self._places.items():
            given = self._roles.answer(self._roles.wire.ask(name, GiveDense(optimizer)))
            pieces.append((places, joined(given.frames), given.of(DenseGiven, name).optimizer))
        dense_state.from_pieces(pieces, self._model, own)

    def _meeting(self) -> str:
        """Where the ranks meet: a free port of the first one's host."""
        first = self._roles.trainers[0]
        told = self._roles.answer(self._roles.wire.ask(first, Query("meeting"))).of(QueryReply, first)
        return f"tcp://{self._hosts[first]}:{int(told.figures['port'])}"
