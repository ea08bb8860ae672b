"""Which modes let row gradients be applied as they come, and times what."""

import pytest

from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.staleness import Inverse, Staleness

FACTS = RunFacts(workers=4, local_batch=16, global_batch=64)


@pytest.mark.parametrize(
    ("mode", "factor"),
    [
        (Async(), 1.0),
        (Async(staleness=Staleness(decay=Inverse())), None),  # how late they are is known when they are applied
        (Hybrid(), 12 / 64),  # their share of the global batch, also of a short batch
        (Hybrid(scale="local"), 1.0),
        (Sync(), None),
        (BulkSync(), None),
        (BoundedStaleness(), None),
        (BackupWorkers(), None),
        (GBA(), None),
        (KStep(), None),
    ],
    ids=lambda given: given.name if isinstance(given, Mode) else str(given),
)
def test_only_gradients_whose_weight_is_known_beforehand_are_applied_as_they_come(
    mode: Mode, factor: float | None
) -> None:
    assert mode.on_arrival(FACTS, 12) == factor
