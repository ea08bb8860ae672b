"""The speed of each worker: draws from the settings in `speeds`.

Every draw is a function of (seed, worker, iteration, time) alone. So a worker has the same speed in every mode,
whatever else happens in a run.
"""

import numpy as np

from hotrow.data.chance import bits, stream, uniform
from hotrow.sim.speeds import F64, ConstantSpeed, Speeds, Stragglers

BLOCK = 64  # iterations drawn at once
MACHINE, BATCH, STRAGGLER = 1, 2, 3  # streams of random numbers


class Pace:
    """Draws speeds from a seed."""

    def __init__(self, speeds: Speeds, seed: int) -> None:
        self.speeds, self.seed = speeds, seed
        self.batch_s, self.sample_s, self.stragglers = speeds.batch_s, speeds.sample_s, speeds.stragglers
        self.batches_vary = not isinstance(speeds.batches, ConstantSpeed)

    def machine(self, worker: int) -> "Machine":
        """The machine of a worker."""
        return Machine(self, worker)


class Machine:
    """The draws of one worker. It caches for speed only: results depend on the arguments alone."""

    __slots__ = ("_block", "_drawn", "_pace", "_worker", "factor")

    def __init__(self, pace: Pace, worker: int) -> None:
        self._pace, self._worker = pace, worker
        self.factor = float(pace.speeds.machines.factors(*_uniform(stream(pace.seed, MACHINE, worker), 0, 1))[0])
        self._block, self._drawn = -1, [1.0]  # factors of the last requested batches

    def seconds(self, iteration: int, time_s: float, samples: int) -> float:
        """How long the worker computes its batch number `iteration`, begun at a time."""
        pace = self._pace
        seconds = (pace.batch_s + pace.sample_s * samples) * self.factor
        if pace.batches_vary:
            block, place = divmod(iteration, BLOCK)
            if block != self._block:
                drawn = _uniform(stream(pace.seed, BATCH, self._worker), block * BLOCK, BLOCK)
                self._block, self._drawn = block, pace.speeds.batches.factors(*drawn).tolist()
            seconds *= self._drawn[place]
        for place, stragglers in enumerate(pace.stragglers):
            if self._straggles(place, stragglers, time_s):
                seconds *= stragglers.factor
        return seconds

    def _straggles(self, place: int, stragglers: Stragglers, time_s: float) -> bool:
        if time_s < stragglers.from_s or (stragglers.until_s is not None and time_s >= stragglers.until_s):
            return False
        if stragglers.workers is not None:
            return self._worker in stragglers.workers
        assert stragglers.share is not None
        period = 0 if stragglers.every_s is None else int((time_s - stragglers.from_s) / stragglers.every_s)
        chance = stragglers.share
        if stragglers.with_load:
            assert self._pace.speeds.load is not None
            chance *= self._pace.speeds.load.pressure(time_s)
        return chance_of(self._pace.seed, STRAGGLER, place, self._worker, period) < chance


def _uniform(start: int, first: int, count: int) -> tuple[F64, F64]:
    """Two independent draws for each of `count` counters from `first` on."""
    drawn = uniform(bits(start, np.arange(2 * first, 2 * (first + count), dtype=np.uint64)))
    return drawn[0::2], drawn[1::2]


def chance_of(*names: int) -> float:
    """One uniform draw that depends on these numbers."""
    return (stream(*names) >> 11) * 2.0**-53
