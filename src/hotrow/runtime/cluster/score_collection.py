"""Scores of the batches that trainers have computed: sketches that the driver collects and merges."""

from collections import Counter
from collections.abc import Sequence

from hotrow.metrics.sketch import ScoreSketch
from hotrow.runtime.cluster.roles import Roles
from hotrow.transport.errors import PeerLost
from hotrow.transport.messages import CollectedScores, CollectScores
from hotrow.transport.sketches import unpack_sketch
from hotrow.types import RoleId


class ScoreCollection:
    """Collects the scores of all trainers, also of those that leave. Those of a lost trainer are counted."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._collections = 0
        self._of_leavers = ScoreSketch()
        self.uncollected: Counter[str] = Counter()  # by trainer, samples whose scores it has

    def take(self) -> ScoreSketch:
        """All scores since the last call."""
        found, self._of_leavers = self._of_leavers, ScoreSketch()
        found.merge(self._collect(self._roles.trainers))
        return found

    def collect_from(self, leaver: RoleId) -> None:
        """A trainer leaves: its scores are part of the next ones."""
        self._of_leavers.merge(self._collect([leaver]))

    def take_lost(self, name: RoleId) -> int:
        """The samples whose scores are lost with a role."""
        return self.uncollected.pop(name, 0)

    def _collect(self, names: Sequence[RoleId]) -> ScoreSketch:
        """Scores of a trainer that is lost meanwhile are lost with it, and counted as such."""
        self._collections += 1
        found, names = ScoreSketch(), list(names)
        asked = self._roles.request_all(names, CollectScores(self._collections))
        for name, each in zip(names, asked, strict=True):
            try:
                answer = self._roles.answer(each)
            except PeerLost:
                if not self._roles.caused_by_loss([name]):
                    raise
                continue
            found.merge(unpack_sketch(answer.of(CollectedScores, name), answer.frames))
            self.uncollected.pop(name, None)
        return found
