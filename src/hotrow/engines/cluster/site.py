"""A run on a cluster: where its dense parameters are in each mode, and the way there and back.

At rest the dense state is here. When a mode begins it goes to the trainers, or to the shards where these serve it; when
the mode ends it comes back from the first trainer, or from each shard what that one has served.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.checkpoint import dense as dense_state
from hotrow.client.aggregate import Average
from hotrow.client.direct import ShardedClient
from hotrow.data.batch import Batch
from hotrow.engines.clock import RunClock
from hotrow.engines.cluster.crew import Now, RemoteCrew
from hotrow.engines.cluster.orders import Orders
from hotrow.engines.cluster.roles import Roles
from hotrow.errors import ConfigError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.server.replicas import k_step_adam
from hotrow.transport.messages import Ask, Begin, DenseGiven, GiveDense, TakeDense, Told
from hotrow.worker.core import Learner, Loss


class ClusterSite:
    """The `Site` of an engine whose workers are trainers of a cluster."""

    def __init__(
        self,
        model: nn.Module,
        client: ShardedClient,
        optimizer: Optimizer | None,
        roles: Roles,
        now: Now,
        *,
        places: Mapping[str, Sequence[int]],
        hosts: Sequence[str],
        loss: Loss | None = None,
        autocast: bool = False,
        average: Average = "batch",
    ) -> None:
        """`places`: by shard, the parameters it serves; `hosts`: where each trainer is."""
        self.optimizer = optimizer
        self.client = client
        self._model, self._roles, self._now, self._average = model, roles, now, average
        self._places, self._hosts = places, hosts
        self._learner = Learner(model, loss=loss, autocast=autocast)
        self._orders: Orders | None = None
        self._number = 0  # of the last order
        self._mode: Mode | None = None
        self._home = (-1, False)  # the order after which the dense state was brought here, and whether all of it
        self._failed = False

    def demand_fit(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where a mode cannot work here."""
        mode.check(facts)
        if mode.dense == "local":
            k_step_adam(self.optimizer)
        if mode.dense != "server" and facts.parts % facts.workers:
            fits = [each for each in range(1, facts.parts + 1) if facts.parts % each == 0]
            raise ConfigError(
                f"trainers={facts.workers}: in {mode.name} all trainers take the same share of the {facts.parts} local "
                f"batches of a global batch: take {', '.join(map(str, fits[-8:]))}, or another local_batch"
            )

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[Orders, RemoteCrew]:
        """A mode begins."""
        self._demand_whole()
        home = partial(self._bring_home, optimizer=True)
        trained, _ = self._now()
        orders = Orders(mode, facts, self._roles, self._number, self._average, trained, home)
        self._number = orders.number  # shards have it, whatever becomes of the rest
        tensors, settings = dense_state.to_bytes(self._model, self.optimizer)
        if mode.dense == "server":
            state = TakeDense(facts.step, settings)
            for asked in self._roles.ask_all(list(self._places), state, [tensors]):
                self._roles.answer(asked)
        meeting = "" if mode.dense == "server" else self._meeting()
        share = facts.parts // facts.workers
        seed = int(torch.randint(2**31, ()))
        begun = [
            self._roles.wire.ask(
                name,
                Begin(
                    mode.model_dump_json(),
                    orders.number,
                    facts.step,
                    rank,
                    facts.workers,
                    share,
                    facts.local_batch,
                    trained,
                    meeting,
                    settings,
                    seed + rank,
                ),
                [tensors],
            )
            for rank, name in enumerate(self._roles.trainers)
        ]
        for each in begun:
            self._roles.answer(each)
        self._orders, self._mode = orders, mode
        return orders, RemoteCrew(self._roles, orders, mode, facts, self._now, self._ended)

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is made or changed."""
        self._demand_whole()
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
        self._orders = self._mode = None

    def _bring_home(self, *, optimizer: bool) -> None:
        """As it is after the last order; at rest nothing of it is still on its way."""
        assert self._mode is not None
        assert self._orders is not None
        number = self._orders.number
        if self._home[0] != number or (optimizer and not self._home[1]):
            self._fetch(self._mode, optimizer=optimizer)
            self._home = (number, optimizer)

    def _demand_whole(self) -> None:
        """After a fault rows and dense parameters are of different steps, and trainers may wait for each other."""
        if self._failed:
            raise InputError("the cluster has failed: close this trainer, and load the last checkpoint into another")

    def _fetch(self, mode: Mode, *, optimizer: bool) -> None:
        own = self.optimizer if optimizer else None
        if mode.dense != "server":
            given = self._roles.answer(self._roles.wire.ask(self._roles.trainers[0], GiveDense(optimizer)))
            if not isinstance(given.message, DenseGiven):
                raise InputError(f"trainer 0 answered {type(given.message).__name__}: is it of another version?")
            dense_state.from_bytes(bytes(given.frames[0]), given.message.optimizer, self._model, own)
            return
        pieces = []
        for name, places in self._places.items():
            given = self._roles.answer(self._roles.wire.ask(name, GiveDense(optimizer)))
            assert isinstance(given.message, DenseGiven)
            pieces.append((places, bytes(given.frames[0]), given.message.optimizer))
        dense_state.from_pieces(pieces, self._model, own)

    def _meeting(self) -> str:
        """Where the ranks meet: a free port of the first one's host."""
        told = self._roles.answer(self._roles.wire.ask(self._roles.trainers[0], Ask("meeting"))).message
        if not isinstance(told, Told):
            raise InputError(f"trainer 0 answered {type(told).__name__}: is it of another version?")
        return f"tcp://{self._hosts[0]}:{int(told.figures['port'])}"
