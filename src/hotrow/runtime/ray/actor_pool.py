"""The actors of a run on Ray, by name: started, monitored, stopped one by one or all together."""

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray._private import state
from ray.exceptions import RayError

from hotrow.errors import ConfigError, SegmentError
from hotrow.runtime.cluster.facts import RoleAddress
from hotrow.runtime.losses import RoleLost
from hotrow.runtime.ray.actors import TransportSettings
from hotrow.runtime.ray.failures import reason
from hotrow.runtime.ray.routing import current_route
from hotrow.types import RoleId

Options = Callable[[str, int], dict[str, Any]]  # (role, number among its kind) -> options of its actor
Freed = Callable[[str, int], None]  # the same number, when the actor has ended

SEGMENT_ERROR = f"{SegmentError.__module__}.{SegmentError.__name__}: "  # as in the text of Ray's error
ROOM_S = 60.0  # for Ray to place an actor that joins
WAKE_S = 0.2  # between two checks whether the run has ended


class ActorPool:
    """The running actors. An actor that was released may end without being a loss."""

    def __init__(
        self, lines: TransportSettings, host: str | None, options: Options, freed: Freed = lambda role, number: None
    ) -> None:
        self._lines, self._host, self._options, self._freed = lines, host, options, freed
        self._route = current_route()
        self._actors: dict[RoleId, Any] = {}
        self._serving: dict[RoleId, Any] = {}  # by name, the call that returns when the role ends
        self._where: dict[RoleId, RoleAddress] = {}
        self._places: dict[RoleId, int] = {}  # number among its kind, of a role that had its place before
        self._free: defaultdict[str, list[int]] = defaultdict(list)  # by kind, places of roles that have ended
        self._nodes: dict[RoleId, str] = {}  # Ray's ids of them, of roles that have ended too
        self._closed = False

    @property
    def nodes(self) -> dict[RoleId, str]:
        """By role, the id of Ray's node that it runs on, or ran on."""
        return dict(self._nodes)

    @property
    def where(self) -> dict[RoleId, RoleAddress]:
        """The addresses of all roles."""
        return dict(self._where)

    def start(self, role: type, given: Mapping[RoleId, Sequence[Any]], *, joins: bool = False) -> dict[RoleId, str]:
        """Start roles of one kind, by name; returns their addresses. A role that joins a run may find no resources."""
        made: dict[RoleId, Any] = {}
        if self._closed:
            raise RoleLost(f"{', '.join(given)}: the run has ended")
        for name, (setup, *rest) in given.items():
            options = self._options(name.kind, self._place(name))
            made[name] = ray.remote(role).options(**options).remote(setup, self._lines, self._host, *rest)
        self._actors |= made
        try:
            for name, actor in made.items():
                if joins:
                    self._check_room(name, actor)
                place, self._nodes[name] = _place(name, actor)
                self._where[name] = replace(place, address=self._route(name, place.address))
            if self._closed:
                raise RoleLost(f"{', '.join(made)}: the run has ended meanwhile")
        except BaseException:
            for name in made:
                self.end(name)
            raise
        self._serving |= {name: actor.serve.remote() for name, actor in made.items()}
        return {name: self._where[name].address for name in made}

    def release(self, name: RoleId) -> None:
        """The role leaves: its end is not a loss."""
        self._serving.pop(name, None)
        self._where.pop(name, None)

    def end(self, name: RoleId) -> None:
        """End an actor that has left, was lost, or could not start."""
        self.release(name)
        if (place := self._places.pop(name, None)) is not None:
            self._free[name.kind].append(place)
        if (actor := self._actors.pop(name, None)) is not None:
            ray.kill(actor)
        if place is not None:
            self._freed(name.kind, place)

    def _place(self, name: RoleId) -> int:
        """Of a role that has ended, if there is one: its resources are reserved."""
        free = self._free[name.kind]
        self._places[name] = free.pop(free.index(min(free))) if free else name.number
        return self._places[name]

    def lost(self) -> dict[RoleId, str]:
        """By name, why roles ended that were not released."""
        serving = dict(self._serving)
        if not serving:
            return {}
        ended, _ = ray.wait(list(serving.values()), num_returns=len(serving), timeout=0)
        return {name: _reason(each) for name, each in serving.items() if each in ended and name in self._serving}

    def close(self, wait_s: float) -> None:
        """End all actors; those that got `Stop` have `wait_s` for it."""
        self._closed = True
        left = list(self._serving.values())
        if left:
            ray.wait(left, num_returns=len(left), timeout=wait_s)
        for name in list(self._actors):
            self.end(name)

    def _check_room(self, name: RoleId, actor: Any) -> None:
        started, until = actor.address.remote(), time.monotonic() + ROOM_S
        while not ray.wait([started], timeout=WAKE_S)[0]:
            if self._closed:
                return
            if time.monotonic() > until and not _is_placed(actor):  # a shard may restore its rows for long
                message = f"{name}: Ray found no resources for it within {ROOM_S:.0f} s"
                raise ConfigError(f"{message}: add nodes (`ray status` lists them), or let another role leave")


def _is_placed(actor: Any) -> bool:
    """Whether Ray has given the actor a process, whose constructor may run still."""
    found: dict[str, Any] = state.state.actor_table(actor._actor_id.hex())
    return bool(found and found["Address"]["Port"])


def _place(name: RoleId, actor: Any) -> tuple[RoleAddress, str]:
    """The address of a role, and the id of its node."""
    try:
        address = str(ray.get(actor.address.remote()))
        host, pid, node = ray.get(actor.__ray_call__.remote(_process))
        return RoleAddress(address, host, pid), node
    except RayError as error:
        why = reason(error)
        if why.startswith(SEGMENT_ERROR):
            raise SegmentError(f"{name}: {why.removeprefix(SEGMENT_ERROR)}") from None
        raise RoleLost(f"{name} could not start: {why}") from None


def _process(_: object) -> tuple[str, int, str]:
    """The host, the process number and the node id of the actor."""
    return socket.gethostname(), os.getpid(), ray.get_runtime_context().get_node_id()


def _reason(serving: Any) -> str:
    try:
        ray.get(serving, timeout=0)
    except RayError as error:
        return reason(error)
    return "it has stopped"
