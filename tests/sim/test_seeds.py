"""Every mode under drawn faults, watched by checkers that know what it promised.

A failing seed prints its trace and the command that replays it. Other seeds: `pytest tests/sim/test_seeds.py --seed=N`.
"""

import pytest

from hotrow.server.step_window import StepWindow
from hotrow.sim import SimResult, Trace
from sim.seeded import NAMES, Draw, StrictWork, run_seed

SEEDS = range(20)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        given = metafunc.config.getoption("seed", None)
        metafunc.parametrize("seed", SEEDS if given is None else [given])


def watched(names: tuple[str, ...], seed: int, only: str) -> SimResult:
    trace = Trace()
    try:
        return run_seed(names, seed, trace)
    except BaseException:
        print(trace.text)
        print(f"replay: python -m pytest tests/sim/test_seeds.py --seed={seed} -k '{only}'")
        raise


@pytest.mark.parametrize("name", NAMES)
def test_a_mode_keeps_its_promises_whatever_happens(name: str, seed: int) -> None:
    result = watched((name,), seed, f"whatever_happens and {name}")
    statistics = result.statistics
    applied = statistics.applied_rows if name.startswith("k_step") else statistics.applied
    assert statistics.granted == applied + sum(statistics.dropped.values())


def test_modes_that_follow_each_other_keep_their_promises(seed: int) -> None:
    draw = Draw(seed)
    names = tuple(NAMES[draw.whole(30 + place, 0, len(NAMES) - 1)] for place in range(4))
    result = watched(names, seed, "follow_each_other")
    assert result.statistics.granted >= 120


def test_the_seeds_meet_every_fault() -> None:
    """Or the tests above would show little."""
    counts: dict[str, int] = {}
    for seed in SEEDS:
        statistics = run_seed(("gba",), seed, Trace()).statistics
        for name, count in {**statistics.counts, **statistics.dropped, "zero_weight": statistics.zero_weight}.items():
            counts[name] = counts.get(name, 0) + count
    assert {name for name, count in counts.items() if count} >= {
        "duplicate_pushes",
        "pushes_after_loss",
        "short_steps",
        "lost",
        "zero_weight",
    }


def test_the_seeds_read_rows_early_and_late() -> None:
    """Or the ledger of rows would show little."""
    work = StrictWork()
    for seed in SEEDS:
        run_seed(("sync_ahead",), seed, Trace(), work=(each := StrictWork()))
        work.early_reads += each.early_reads
        work.late_reads += each.late_reads
    assert work.early_reads > 1000
    assert work.late_reads > 1000


def test_the_ledger_notices_a_row_that_is_read_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the keys of one batch of the step before were forgotten."""
    monkeypatch.setattr(StepWindow, "in_hand", lambda self, step: [])
    with pytest.raises(AssertionError, match="old row"):
        run_seed(("sync_ahead",), 0, Trace())
