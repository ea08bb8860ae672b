"""Days on a shared cluster, counted: Sync all day, GBA all day, the controller, and who knows the future.

Workers and batches are the same in both modes. On an idle cluster Sync is ahead, because its dense parameters go around
a ring and not through the servers; workers straggle as the load of the day says, and then GBA is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotrow.modes import GBA, Mode, Sync
from hotrow.reproduce.auto_schedule import Stretch, best_schedule, needless, samples_between, upper_bound
from hotrow.sim import ClusterConfig, CountingWork, Load, LogNormal, Network, SimCluster, SimResult, Speeds, Stragglers
from hotrow.sim.auto import AutoDecision, AutoPilot
from hotrow.switching import Auto, ModeName

DAY_S, WINDOW_S = 86_400.0, 600.0
QUIET_S = 7_200.0  # every day begins with so many quiet ones
WORKERS = 32
BATCH_S, LOCAL_BATCH = 16.0, 8_192
DENSE_BYTES, ROW_BYTES = 200_000_000, 2_000
ENDLESS = 2**60  # samples
MODES: dict[ModeName, Mode] = {"sync": Sync(), "gba": GBA(tolerance=4)}
SHIFTS = (
    0.40, 0.40, 0.40, 0.40, 0.40, 0.40, 0.50, 0.70, 0.90, 0.95, 0.95, 0.90,
    0.50, 0.50, 0.90, 0.95, 0.95, 0.95, 0.90, 0.90, 0.80, 0.60, 0.45, 0.40,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DayThroughput:
    """How busy it is, and how many straggle when it is full."""

    title: str
    load: Load
    share: float


DAYS = {
    "working day": DayThroughput(
        "quiet before dawn, in the shape of GBA's Fig. 1; from 4 to 4 o'clock", Load(first_hour=4), 0.15
    ),
    "two shifts": DayThroughput("quiet at night and at noon", Load(hours=SHIFTS), 0.15),
    "few stragglers": DayThroughput(
        "two shifts, but at most one worker in a hundred is slow", Load(hours=SHIFTS), 0.01
    ),
}


def cluster(
    day: DayThroughput, *, batch_s: float = BATCH_S, local_batch: int = LOCAL_BATCH, dense_bytes: int = DENSE_BYTES
) -> ClusterConfig:
    """A shared cluster on this day. Traffic and stragglers keep their proportion to the time of a batch."""
    link = round(dense_bytes / (0.1 * batch_s))  # dense parameters take a tenth of a batch, each way
    slow = Stragglers(share=day.share, factor=3.0, every_s=300.0 * batch_s / BATCH_S, with_load=True)
    return ClusterConfig(
        workers=WORKERS,
        local_batch=local_batch,
        window_s=WINDOW_S,
        network=Network(
            latency_s=1e-3 * batch_s / BATCH_S,
            bandwidth=40 * link,
            worker_bandwidth=link,
            reduce_latency_s=1e-4 * batch_s / BATCH_S,
            reduce_bandwidth=10 * link,
        ),
        speeds=Speeds(
            sample_s=batch_s / local_batch,
            machines=LogNormal(sigma=0.01),
            batches=LogNormal(sigma=0.01),
            stragglers=(slow,),
            load=day.load,
        ),
    )


def throughput(config: ClusterConfig, rules: Mapping[str, Auto], seed: int, day_s: float = DAY_S) -> dict[str, Any]:
    """Samples of a day as parts of the upper bound: each mode alone, the best schedule, the controller by its rules.

    The schedule is found from the rates of both modes, and then run, so that it pays for its changes as others do.
    """
    settings: dict[str, Any] = {"data": ENDLESS, "work": CountingWork(DENSE_BYTES, ROW_BYTES), "seed": seed}
    sync, gba = (SimCluster(mode, config, **settings).run(until_s=day_s) for mode in MODES.values())
    most = upper_bound(sync.rates, gba.rates)
    schedule = best_schedule(sync.rates, gba.rates, config.facts.global_batch)
    found: dict[str, Any] = {
        "upper_bound_samples": most,
        "sync": sync.samples_applied / most,
        "gba": gba.samples_applied / most,
        "schedule": _scheduled(config, schedule, settings, day_s).samples_applied / most,
        "schedule_switches": [{"time_s": each.start_s, "mode": each.mode} for each in schedule[1:]],
        "quiet_lead": samples_between(sync.rates, 0.0, QUIET_S) / samples_between(gba.rates, 0.0, QUIET_S) - 1,
    }
    for name, rule in rules.items():
        pilot = AutoPilot(rule, config, dense_bytes=DENSE_BYTES)
        result = pilot.cluster(**settings).run(until_s=day_s)
        found[name] = {
            "samples": result.samples_applied / most,
            "switches": [
                {"time_s": each.time_s, "mode": each.mode, "sentence": each.sentence} for each in pilot.decisions
            ],
            "needless": needless(stretches(pilot.decisions, day_s), sync.rates, gba.rates),
            "short_steps": result.statistics.short_steps,
        }
    return found


def stretches(told: Sequence[AutoDecision], end_s: float) -> list[Stretch]:
    """The controller's day; it begins in Sync."""
    modes: list[ModeName] = ["sync", *(each.mode for each in told)]
    times = [0.0, *(each.time_s for each in told), end_s]
    return [Stretch(mode, times[place], times[place + 1]) for place, mode in enumerate(modes)]


def _scheduled(config: ClusterConfig, schedule: Sequence[Stretch], settings: dict[str, Any], day_s: float) -> SimResult:
    """A day by the clock, with all that changes cost."""
    run = SimCluster(MODES[schedule[0].mode], config, **settings)
    for stretch in schedule[1:]:
        run.switch(MODES[stretch.mode], at_s=stretch.start_s)
    return run.run(until_s=day_s)
