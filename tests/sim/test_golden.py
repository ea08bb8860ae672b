"""One script for all modes, kept as text: five workers, one of them slow, one that is cut off and comes back, a rest.

A batch takes a second, on worker 4 two and a half. Worker 2 is out of reach from 3.3 s on; that is noticed at 3.6 s,
what it was computing arrives all the same, and it is back at 5.2 s. Some pushes arrive twice. At 6.4 s everything comes
to rest, and goes on. There are 27 batches of 8 samples and one of 3; a global batch is five of them.

A trace that changes is reviewed as text, line by line against the rules of the mode, and then written anew:
`pytest tests/sim/test_golden.py --write-golden`.
"""

from pathlib import Path

import pytest

from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.sim import Checkers, ClusterConfig, Crash, Faults, Messages, SimCluster, Speeds, Stragglers, Trace

GOLDEN = Path(__file__).parent / "golden"
SAMPLES = 27 * 8 + 3
CONFIG = ClusterConfig(
    workers=5,
    local_batch=8,
    speeds=Speeds(batch_s=1.0, sample_s=0.0, stragglers=(Stragglers(workers=(4,), factor=2.5),)),
    faults=Faults(
        crashes=(Crash(worker=2, at_s=3.3, restart_after_s=1.9, cut_off=True),),
        messages=Messages(duplicate=0.1, timeout_s=0.7),
        detect_s=0.3,
    ),
)
MODES: tuple[Mode, ...] = (
    Sync(),
    Async(),
    BulkSync(bulk=3),
    BoundedStaleness(bound=1),
    BackupWorkers(backups=1),
    GBA(tolerance=0),
    Hybrid(max_in_flight=2),
    KStep(k=2, warmup=0),
)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_script_goes_as_it_was_reviewed(mode: Mode, request: pytest.FixtureRequest) -> None:
    trace, checkers = Trace(), Checkers()
    cluster = SimCluster(mode, CONFIG, data=SAMPLES, seed=3, watchers=[trace, checkers])
    cluster.rest(at_s=6.4)
    cluster.run()
    checkers.end(SAMPLES)
    kept = GOLDEN / f"{mode.name}.txt"
    if request.config.getoption("write_golden", False):
        kept.write_text(trace.text)
    assert trace.text.splitlines() == kept.read_text().splitlines()
