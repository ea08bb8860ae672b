"""A cluster on Ray for one run: its roles started in order, watched while it runs, and ended with it."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError
from torch import nn
from torch.optim import Optimizer

from hotrow.config import Table
from hotrow.engines.cluster.roles import Roles
from hotrow.engines.ray.actors import Lines, ShardRole, ShardSetup, TrainerRole
from hotrow.errors import HotrowError
from hotrow.server.dense_piece import spread
from hotrow.transport.messages import Stop, Values
from hotrow.worker.core import Loss
from hotrow.worker.setup import TrainerSetup

Options = Callable[[str, int], dict[str, Any]]  # (role, number among its kind) -> options of its actor

STOP_S = 10.0  # that a role has to leave in good order


class RoleLost(HotrowError):
    """A role of the cluster ended while it was needed."""


class RayCluster:
    """Shards and trainers of one run. Use it in a `with`, or close it."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        model: nn.Module,
        optimizer: Optimizer | None,
        *,
        shards: int,
        trainers: int,
        lines: Lines,
        loss: Loss | None = None,
        clip: float | None = None,
        autocast: bool = False,
        threads: int = 1,
        values: Mapping[str, Values] | None = None,
        host: str | None = "127.0.0.1",
        options: Options = lambda role, number: {"num_cpus": 0},
    ) -> None:
        """`host`: where roles listen, None for the address of their node; `options`: how Ray starts an actor."""
        self._options = options
        sizes = [each.numel() for each in model.parameters() if each.requires_grad]
        held = spread(sizes, shards, together=clip is not None)
        names = [f"shard {number}" for number in range(shards)]
        self.places = {name: places for name, places in zip(names, held, strict=True) if places or name == names[0]}
        self.wire = lines.wire(delayed=True)
        self._actors: dict[str, Any] = {}
        self._serving: dict[str, Any] = {}  # by name, what ends when the role does
        try:
            addresses = self._start(
                ShardRole,
                {
                    name: (ShardSetup(tables, number, shards, model, optimizer, held[number], threads, clip, values),)
                    for number, name in enumerate(names)
                },
                lines,
                host,
            )
            base_lrs = [group["lr"] for group in optimizer.param_groups] if optimizer is not None else []
            setup = TrainerSetup(
                tables, names, model, optimizer, base_lrs, self.places, loss, clip, autocast, threads, values
            )
            workers = [f"trainer {worker}" for worker in range(trainers)]
            given = {name: (setup, addresses, worker) for worker, name in enumerate(workers)}
            addresses |= self._start(TrainerRole, given, lines, host)
            for name, address in addresses.items():
                self.wire.connect(name, address)
        except BaseException:
            self.close()
            raise
        self.roles = Roles(self.wire, names, workers, self.demand_alive)
        self.hosts = [addresses[name].removeprefix("tcp://").rpartition(":")[0] for name in workers]

    def demand_alive(self) -> None:
        """RoleLost, naming who is gone, where one of the roles has ended."""
        ended, _ = ray.wait(list(self._serving.values()), num_returns=1, timeout=0)
        for name, serving in self._serving.items():
            if serving in ended:
                raise RoleLost(f"{name} is gone: {_reason(serving)}")

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

    def _start(self, role: type, given: Mapping[str, Sequence[Any]], lines: Lines, host: str | None) -> dict[str, str]:
        """Actors of one kind, by name; gives where they listen."""
        made: dict[str, Any] = {}
        for number, (name, (setup, *rest)) in enumerate(given.items()):
            options = self._options(name.rpartition(" ")[0], number)
            made[name] = ray.remote(role).options(**options).remote(setup, lines, host, *rest)
        self._actors |= made
        addresses = {name: ray.get(actor.address.remote()) for name, actor in made.items()}
        self._serving |= {name: actor.serve.remote() for name, actor in made.items()}
        return addresses


def _reason(serving: Any) -> str:
    try:
        ray.get(serving, timeout=0)
    except RayTaskError as error:
        return f"{type(error.cause).__name__}: {error.cause}"
    except RayActorError as error:
        return str(error).splitlines()[0]
    return "it has stopped"
