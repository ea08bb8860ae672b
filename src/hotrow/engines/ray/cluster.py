"""A cluster on Ray for one run: its roles started in order, watched while it runs, and ended with it."""

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError
from torch import nn
from torch.optim import Optimizer

from hotrow.client.through import peer_name
from hotrow.config import Table
from hotrow.engines.cluster.embedders import Embedders
from hotrow.engines.cluster.facts import ClusterFacts, RolePlace
from hotrow.engines.cluster.roles import Roles
from hotrow.engines.ray.actors import EmbeddingRole, Lines, ShardRole, ShardSetup, TrainerRole
from hotrow.errors import ConfigError, HotrowError
from hotrow.server.dense_piece import spread
from hotrow.transport.messages import Stop, Values
from hotrow.worker.core import Loss
from hotrow.worker.embedding import Bounds
from hotrow.worker.embedding_process import EmbeddingSetup
from hotrow.worker.setup import TrainerSetup

Options = Callable[[str, int], dict[str, Any]]  # (role, number among its kind) -> options of its actor

STOP_S = 10.0  # that a role has to leave in good order


class RoleLost(HotrowError):
    """A role of the cluster ended while it was needed."""


class RayCluster:
    """Shards, trainers and, if there are any, embedding workers of one run. Use it in a `with`, or close it."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        model: nn.Module,
        optimizer: Optimizer | None,
        *,
        shards: int,
        trainers: int,
        lines: Lines,
        embedding_workers: int = 0,
        bounds: Bounds | None = None,
        loss: Loss | None = None,
        clip: float | None = None,
        autocast: bool = False,
        threads: int = 1,
        values: Mapping[str, Values] | None = None,
        host: str | None = "127.0.0.1",
        options: Options = lambda role, number: {"num_cpus": 0},
    ) -> None:
        """`host`: where roles listen, None for the address of their node; `options`: how Ray starts an actor.

        Without embedding workers trainers talk to the shards themselves; `bounds` are of what each of them keeps.
        """
        self._options, self._lines, self._host = options, lines, host
        self._embedding_started = 0
        sizes = [each.numel() for each in model.parameters() if each.requires_grad]
        held = spread(sizes, shards, together=clip is not None)
        names = [f"shard {number}" for number in range(shards)]
        self.places = {name: places for name, places in zip(names, held, strict=True) if places or name == names[0]}
        self.wire = lines.wire(delayed=True)
        self._actors: dict[str, Any] = {}
        self._serving: dict[str, Any] = {}  # by name, what ends when the role does
        self._where: dict[str, RolePlace] = {}
        try:
            addresses = self._start(
                ShardRole,
                {
                    name: (ShardSetup(tables, number, shards, model, optimizer, held[number], threads, clip, values),)
                    for number, name in enumerate(names)
                },
            )
            self._shards = dict(addresses)
            self._embedding = EmbeddingSetup(tables, 0, names, threads, values, bounds or Bounds())
            base_lrs = [group["lr"] for group in optimizer.param_groups] if optimizer is not None else []
            setup = TrainerSetup(
                tables,
                names,
                model,
                optimizer,
                base_lrs,
                self.places,
                loss,
                clip,
                autocast,
                threads,
                values,
                through=embedding_workers > 0,
            )
            workers = [f"trainer {worker}" for worker in range(trainers)]
            given = {name: (setup, addresses, worker) for worker, name in enumerate(workers)}
            addresses |= self._start(TrainerRole, given)
            for name, address in addresses.items():
                self.wire.connect(name, address)
            embedders = Embedders(self.wire, workers) if embedding_workers else None
            self.roles = Roles(self.wire, names, workers, self.demand_alive, embedders)
            for _ in range(embedding_workers):
                self.join_embedding_worker()
        except BaseException:
            self.close()
            raise
        self.hosts = [addresses[name].removeprefix("tcp://").rpartition(":")[0] for name in workers]

    def facts(self) -> ClusterFacts:
        """Who is in it now."""
        roles = {name: self._where[name] for name in self._actors}
        return ClusterFacts(self._lines.security, self._lines.key, roles, self._lost())

    def demand_alive(self) -> None:
        """RoleLost, naming who is gone, where one of the roles has ended."""
        for name, reason in self._lost().items():
            raise RoleLost(f"{name} is gone: {reason}")

    def _lost(self) -> dict[str, str]:
        serving = dict(self._serving)
        if not serving:
            return {}
        ended, _ = ray.wait(list(serving.values()), num_returns=len(serving), timeout=0)
        return {name: _reason(each) for name, each in serving.items() if each in ended}

    def join_embedding_worker(self) -> str:
        """One more, also while a mode runs; gives its name."""
        embedders = self._embedders()
        name = peer_name(self._embedding_started)
        given = {name: (replace(self._embedding, number=self._embedding_started), self._shards)}
        self._embedding_started += 1
        embedders.join(name, self._start(EmbeddingRole, given)[name])
        return name

    def leave_embedding_worker(self, name: str) -> "Future[None]":
        """It gets no more batches, and has stopped when what comes back is done. Do not wait where steps are made."""
        left = self._embedders().leave(name)
        actor = self._actors.pop(name)
        self._serving.pop(name)  # that it ends is no loss
        left.add_done_callback(lambda _: ray.kill(actor))
        return left

    def _embedders(self) -> Embedders:
        if self.roles.embedders is None:
            raise ConfigError("embedding_workers=0: this run's trainers look rows up themselves: start it with some")
        return self.roles.embedders

    def close(self) -> None:
        """Ask all roles to stop, and end those that do not."""
        asked = []
        for name in reversed(self._actors):  # who computes goes before who holds rows
            with contextlib.suppress(HotrowError):
                asked.append(self.wire.ask(name, Stop()))
        left = list(self._serving.values())
        if left:
            ray.wait(left, num_returns=len(left), timeout=STOP_S)
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()
        self._serving.clear()
        self.wire.close()

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, role: type, given: Mapping[str, Sequence[Any]]) -> dict[str, str]:
        """Actors of one kind, by name; gives where they listen."""
        made: dict[str, Any] = {}
        for name, (setup, *rest) in given.items():
            kind, _, number = name.rpartition(" ")
            options = self._options(kind, int(number))
            made[name] = ray.remote(role).options(**options).remote(setup, self._lines, self._host, *rest)
        self._actors |= made
        addresses = {name: _address(name, actor) for name, actor in made.items()}
        processes = {name: ray.get(actor.__ray_call__.remote(_process)) for name, actor in made.items()}
        self._where |= {name: RolePlace(address, *processes[name]) for name, address in addresses.items()}
        self._serving |= {name: actor.serve.remote() for name, actor in made.items()}
        return addresses


def _address(name: str, actor: Any) -> str:
    try:
        return str(ray.get(actor.address.remote()))
    except RayActorError as error:
        raise RoleLost(f"{name} could not start: {error}") from None


def _process(_: object) -> tuple[str, int]:
    """Of the actor it runs in: its node and its number there."""
    return socket.gethostname(), os.getpid()


def _reason(serving: Any) -> str:
    try:
        ray.get(serving, timeout=0)
    except RayTaskError as error:
        return f"{type(error.cause).__name__}: {error.cause}"
    except RayActorError as error:
        return str(error).splitlines()[0]
    return "it has stopped"
