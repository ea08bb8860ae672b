"""Places of trainers whose number changes with the cluster: a placement group for each, requested one at a time."""

from collections.abc import Mapping

from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group


class TrainerPlaces:
    """The groups of running trainers by place, those that are ready for one, and the one that Ray looks for."""

    def __init__(self, bundle: Mapping[str, float]) -> None:
        """`bundle`: the resources of one trainer."""
        self._bundle = bundle
        self._requested: PlacementGroup | None = None
        self._ready: list[PlacementGroup] = []
        self._used: dict[int, PlacementGroup] = {}

    @property
    def requested(self) -> bool:
        """Whether Ray looks for a place."""
        return self._requested is not None

    @property
    def ready(self) -> int:
        """Places that no trainer uses yet."""
        return len(self._ready)

    def request(self) -> None:
        """Let Ray look for one more place. An autoscaler adds a node where there is none."""
        if self._requested is None:
            self._requested = self._group()

    def wait(self, timeout_s: float) -> bool:
        """Whether the requested place is there."""
        if (group := self._requested) is None or not group.wait(timeout_s):
            return False
        self._requested = None
        self._ready.append(group)
        return True

    def withdraw(self) -> None:
        """Stop asking, and give back what no trainer uses."""
        unused = [*self._ready, *([] if self._requested is None else [self._requested])]
        self._ready, self._requested = [], None
        for group in unused:
            remove_placement_group(group)

    def take(self, number: int) -> PlacementGroup:
        """The group of a trainer that starts: a place that is ready, else one that the trainer waits for."""
        self.free(number)
        group = self._used[number] = self._ready.pop(0) if self._ready else self._group()
        return group

    def free(self, number: int) -> None:
        """A trainer has ended. Its group would move to another node where its own one ended."""
        if (group := self._used.pop(number, None)) is not None:
            remove_placement_group(group)

    def close(self) -> None:
        """Remove all groups."""
        self.withdraw()
        for number in list(self._used):
            self.free(number)

    def _group(self) -> PlacementGroup:
        made: PlacementGroup = placement_group([self._bundle], strategy="PACK")
        return made
