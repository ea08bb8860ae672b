"""A chaos run from a seed: Ray, both parts, and a look at what is left behind."""

import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from faulthandler import dump_traceback
from functools import partial
from pathlib import Path

from hotrow.chaos.clusters import CACHED_MODES, COUNTED_MODES, CPUS, LEARNED_MODES, REPLICATED, segment_run
from hotrow.chaos.counted import CountedPart, count
from hotrow.chaos.injection import Injected, Injector, Tell
from hotrow.chaos.learning import LearnedPart, learn
from hotrow.chaos.leftovers import Traces
from hotrow.chaos.links import Links
from hotrow.chaos.plan import plan_faults
from hotrow.modes import Mode
from hotrow.store.segments import SHARED_MEMORY

CACHED_S = 60.0  # from here on a table with a cache takes part
LONG_S = 300.0  # from here on KStep takes part
PLANS = 2**32  # between the seeds of the plans of a run
PATIENCE = 10  # a plan is so many times as long as its part should take: a busy machine may need it
SHORT_S, BRIEF_S = 120.0, 30.0  # below them two modes learn, and one: each needs samples enough for a stable AUC


@dataclass(slots=True)
class ChaosResult:
    """Everything that a chaos run has found."""

    seed: int
    minutes: float
    counted: list[CountedPart] = field(default_factory=list)
    learned: LearnedPart | None = None
    injected: list[Injected] = field(default_factory=list)
    processes: int = 0
    faults: list[str] = field(default_factory=list)
    trace: str | None = None  # where training ended early


def run_chaos(seconds: float, seed: int, tell: Tell, clock: Callable[[float], None] = lambda _: None) -> ChaosResult:
    """Train under the faults of a seed for some seconds, half of them counted and half of them learned."""
    from hotrow.runtime.ray.own import own_ray
    from hotrow.runtime.ray.routing import routed

    result = ChaosResult(seed, seconds / 60)
    traces = Traces(segment_run())
    with Links() as links, tempfile.TemporaryDirectory(prefix="hotrow-chaos-") as folder:
        again = f"hotrow chaos --minutes {seconds / 60:g} --seed {seed}"
        injector = Injector(links, tell, partial(_stalled, again), clock)
        try:
            with own_ray(CPUS, log_to_driver=False), routed(links.route):
                _train(injector, seconds, seed, Path(folder), tell, traces, result)
        except Exception as error:  # a run has to survive all of it, whatever ended it
            result.faults.append(f"training ended: {type(error).__name__}: {error}")
            result.trace = traceback.format_exc()
        traces.listen_on(links.ports)
        result.injected = injector.injected
    result.processes = traces.processes
    result.faults += traces.faults()
    return result


def _train(
    injector: Injector, seconds: float, seed: int, folder: Path, tell: Tell, traces: Traces, result: ChaosResult
) -> None:
    """Trainers look rows up themselves in one part, and through embedding workers in the other."""
    pooled = seed % 2 == 0

    def told(text: str) -> None:
        traces.look()
        tell(text)

    counted, learned = _in_turn(COUNTED_MODES, seed), _in_turn(LEARNED_MODES, seed)
    groups, half_s = [counted], seconds / 2
    if seconds >= CACHED_S:
        groups.append(_in_turn(CACHED_MODES, seed))  # other modes refuse a cache
    if seconds >= LONG_S:
        groups.append([REPLICATED])  # its optimizer is another one
        learned.append(REPLICATED)
    elif seconds < SHORT_S:
        learned = learned[: 1 if seconds < BRIEF_S else 2]
    for place, modes in enumerate(groups):
        share_s, cached = half_s * len(modes) / sum(map(len, groups)), place == 1
        injector.begin(plan_faults(seed + place * PLANS, PATIENCE * share_s))
        roles = {"pooled": pooled and not cached, "cached": cached}
        result.counted.append(count(injector, modes, share_s, folder / f"counted-{place}", told, **roles))
        result.faults += result.counted[-1].faults
    injector.begin(plan_faults(seed + len(groups) * PLANS, PATIENCE * half_s))
    result.learned = learn(injector, learned, half_s, folder / "learned", told, pooled=not pooled, seed=seed)
    result.faults += result.learned.faults


def _in_turn(modes: Sequence[Mode], seed: int) -> list[Mode]:
    return random.Random(seed).sample(modes, len(modes))


def _stalled(command: str, sentence: str) -> None:
    """Nothing that this process could wait for would end: roles end with it, and leave their segments."""
    print(f"stalled: {sentence}; the same plan of faults again: {command}", file=sys.stderr, flush=True)
    dump_traceback(all_threads=True)
    for path in SHARED_MEMORY.glob(f"hotrow-{segment_run()}-*"):
        path.unlink(missing_ok=True)
    os._exit(1)
