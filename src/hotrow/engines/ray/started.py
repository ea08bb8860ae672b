"""Ray itself: the one that runs, or one for this run alone; and where its actors go."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hotrow.engines.settings import Ray, Resources
from hotrow.errors import ConfigError

PLACING_S = 60.0  # that Ray has to find room for all roles


@contextmanager
def connected(settings: Ray) -> Iterator[None]:
    """Ray for a run. One that was there before stays; one that was started here ends with the run."""
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": True}
    if settings.address is not None:
        try:
            ray.init(address=settings.address, **quiet)
        except ConnectionError as error:
            raise ConfigError(f"engine.address={settings.address!r}: no Ray answers there: {error}") from None
    else:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # it listens on loopback, and the data plane has its own key
        ray.init(num_cpus=_cpus(settings), include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


def _cpus(settings: Ray) -> int:
    """A Ray of our own has room for what was asked for, however many cores there are."""
    asked = settings.trainers * settings.trainer.cpus + settings.shards * settings.shard.cpus
    return max(1, int(asked + 0.999))


class Placed:
    """Room for all roles, taken at once or not at all."""

    def __init__(self, settings: Ray) -> None:
        wanted = [_bundle(settings.shard)] * settings.shards + [_bundle(settings.trainer)] * settings.trainers
        self._group: PlacementGroup = placement_group(wanted, strategy=settings.strategy)
        if not self._group.wait(PLACING_S):
            remove_placement_group(self._group)
            raise ConfigError(
                f"engine: Ray found no room within {PLACING_S:.0f} s for {settings.shards} shards of "
                f"{_bundle(settings.shard)} and {settings.trainers} trainers of {_bundle(settings.trainer)}, "
                f"placed {settings.strategy}: ask for less, or add nodes (`ray status` shows what there is)"
            )
        self._shards = settings.shards
        self._resources = {"shard": settings.shard, "trainer": settings.trainer}

    def options(self, role: str, number: int) -> dict[str, Any]:
        """How an actor is started: in its place, with what it asked for."""
        resources = self._resources[role]
        place = number if role == "shard" else self._shards + number
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
        return {
            "num_cpus": resources.cpus,
            "num_gpus": resources.gpus,
            "resources": dict(resources.custom),
            "scheduling_strategy": strategy,
        }

    def close(self) -> None:
        """Give the room back."""
        remove_placement_group(self._group)


def _bundle(resources: Resources) -> Mapping[str, float]:
    asked = {"CPU": resources.cpus, "GPU": resources.gpus, **resources.custom}
    return {name: amount for name, amount in asked.items() if amount} or {"CPU": 0.001}
