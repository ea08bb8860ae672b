"""The connection to Ray, running or started for this run; and the placement of its actors."""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hotrow.errors import ConfigError
from hotrow.runtime.ray.address import check_answers, resolve
from hotrow.runtime.ray.authentication import check_has_token, check_supported, warn_if_open
from hotrow.runtime.ray.failures import first_line
from hotrow.runtime.ray.own import own_ray
from hotrow.runtime.ray.trainer_places import TrainerPlaces
from hotrow.runtime.settings import Ray, Resources

PLACING_S = 60.0  # for Ray to place all roles
AT_ONCE_S = 2.0  # for Ray to place a trainer where there is room
WAKE_S = 0.5  # between two checks for a Ctrl-C

_log = logging.getLogger("hotrow.runtime")


@contextmanager
def connect_ray(settings: Ray) -> Iterator[bool]:
    """Connect to Ray. One that ran before stays; one that was started here ends with the run. Yields whether it was."""
    check_supported()
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if settings.address not in (None, "auto", here):
            message = f"engine.address={settings.address!r}: this process is connected to the Ray at {here} already"
            raise ConfigError(f"{message}: leave the address out, or call ray.shutdown() first")
        warn_if_open(here)
        yield False
    elif settings.address is None:
        with own_ray(_cpus(settings)):
            yield True
    else:
        _connect(settings.address)
        try:
            if "://" not in settings.address:  # a Ray client does not know the addresses of its cluster
                warn_if_open(ray.get_runtime_context().gcs_address)
            yield False
        finally:
            ray.shutdown()


def _connect(given: str) -> None:
    """Connect to a running Ray, with the mode and the token of the environment."""
    check_has_token(given)
    address = resolve(given)
    where = f"engine.address={given!r}" if address == given else f"engine.address={given!r} is {address}"
    try:
        check_answers(address)
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=True)
    except (OSError, RayError) as error:
        message = f"{where}: no Ray answers there: {first_line(str(error))}"
        raise ConfigError(f"{message}: start one, or leave it out") from None


def _cpus(settings: Ray) -> int:
    """A Ray of our own offers as many CPUs as the roles request, whatever the machine has.

    Where the number of trainers may rise, it offers those of the machine, if these are more.
    """
    asked = sum(count * resources.cpus for _, count, resources in _roles(settings))
    asked += settings.trainers_fewest * settings.trainer.cpus if settings.elastic else 0
    return max(1, int(asked + 0.999), len(os.sched_getaffinity(0)) if settings.elastic else 1)


class PlacedRoles:
    """A placement group for all roles; in a Ray of the run's own, roles that join need no place.

    Trainers whose number changes have a group each.
    """

    def __init__(self, settings: Ray, *, own: bool = False) -> None:
        self._own, self._settings, self._roles = own, settings, _roles(settings)
        self._next_report = time.monotonic() + AT_ONCE_S
        self.trainer_places = TrainerPlaces(_bundle(settings.trainer)) if settings.elastic else None
        wanted = [_bundle(resources) for _, count, resources in self._roles for _ in range(count)]
        self._group: PlacementGroup = placement_group(wanted, strategy=settings.strategy)
        try:
            self._await_group()
        except BaseException:
            remove_placement_group(self._group)
            raise

    def place_trainers(self, most: int) -> int:
        """How many trainers start. Of a number that changes: the fewest are waited for, more where there is room."""
        settings, places = self._settings, self.trainer_places
        if places is None:
            return settings.trainers_fewest
        for number in range(most):
            places.request()
            if number < settings.trainers_fewest:
                asked = f"trainer {number + 1} of {settings.trainers_fewest} with {_bundle(settings.trainer)}"
                while not places.wait(WAKE_S):
                    self._report_wait(asked)
            elif not places.wait(AT_ONCE_S):
                break
        return places.ready

    def options(self, role: str, number: int) -> dict[str, Any]:
        """Options of an actor: its place and resources; a role that joins later has no place."""
        place = [known for known, _, _ in self._roles].index(role)
        before = sum(count for _, count, _ in self._roles[:place])
        _, count, resources = self._roles[place]
        asked = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "resources": dict(resources.custom)}
        if role == "trainer" and self.trainer_places is not None:
            group = self.trainer_places.take(number)
            return {**asked, "scheduling_strategy": PlacementGroupSchedulingStrategy(group, 0)}
        if number >= count:
            return asked | {"num_cpus": 0} if self._own else asked
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=before + number)
        return {**asked, "scheduling_strategy": strategy}

    def free(self, role: str, number: int) -> None:
        """A role has ended, and its place is free."""
        if role == "trainer" and self.trainer_places is not None:
            self.trainer_places.free(number)

    def close(self) -> None:
        """Remove the placement groups."""
        if self.trainer_places is not None:
            self.trainer_places.close()
        remove_placement_group(self._group)

    def _await_group(self) -> None:
        """Where the number of trainers changes, nodes may still come: a minute is no bound then."""
        settings, begun = self._settings, time.monotonic()
        asked = ", ".join(f"{count} {role}s of {_bundle(each)}" for role, count, each in self._roles if count)
        while not self._group.wait(WAKE_S):
            if settings.elastic:
                self._report_wait(f"{asked}, placed {settings.strategy}")
            elif time.monotonic() - begun > PLACING_S:
                raise ConfigError(
                    f"engine: Ray found no resources within {PLACING_S:.0f} s for {asked}, placed {settings.strategy}: "
                    "request less, or add nodes (`ray status` lists them)"
                )

    def _report_wait(self, asked: str) -> None:
        """A line when the wait begins, and one a minute."""
        if time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + PLACING_S
            remedy = "add nodes (`ray status` lists them), or end this run with Ctrl-C"
            _log.warning("engine: waits until Ray has resources for %s: %s", asked, remedy)


def _roles(settings: Ray) -> list[tuple[str, int, Resources]]:
    return [
        ("shard", settings.shards, settings.shard),
        ("trainer", 0 if settings.elastic else settings.trainers_fewest, settings.trainer),
        ("embedding worker", settings.embedding_workers, settings.embedding_worker),
        ("loader", settings.loaders, settings.loader),
    ]


def _bundle(resources: Resources) -> Mapping[str, float]:
    asked = {"CPU": resources.cpus, "GPU": resources.gpus, **resources.custom}
    return {name: amount for name, amount in asked.items() if amount} or {"CPU": 0.001}
