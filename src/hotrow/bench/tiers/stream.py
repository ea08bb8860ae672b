"""The ids of the part `capacity`: the same work in every batch, whatever the id space and the rows on disk."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.bench.tiers.plan import CapacityJob, TiersPlan
from hotrow.data.schema import Schema
from hotrow.data.source import ArrowSource, Source
from hotrow.data.synthetic.draws import Zipf

Ids = NDArray[np.int64]

SCATTER = 30_177_443_003  # from one stored id to the next, modulo the smallest space


@dataclass(frozen=True, slots=True)
class CapacityStream:
    """Samples over an id space of which `stored` ids have rows.

    Of the ids of a batch, `new_share` are drawn evenly from the space, which has no rows there but by chance,
    `stored_share` evenly from the rows on disk, and the others by a Zipf law from the hot ids.
    """

    plan: TiersPlan
    space: int
    stored: int
    seed: int

    def round(self, turn: int) -> Source:
        """The samples of a round; no other round has its new ids."""
        plan = self.plan
        random = np.random.default_rng((self.seed, turn))
        samples = plan.capacity.steps * plan.samples
        columns: dict[str, NDArray[np.generic]] = {"label": random.integers(2, size=samples)}
        for place in range(plan.numbers):
            columns[f"number_{place}"] = random.normal(size=samples).astype(np.float32)
        for place in range(plan.features):
            columns[f"id_{place}"] = self._ids(random, samples)
        schema = Schema(
            label="label",
            numbers=[name for name in columns if name.startswith("number_")],
            ids=[{"column": name, "space": "row"} for name in columns if name.startswith("id_")],
        )
        return ArrowSource(pa.table(columns), schema)

    def _ids(self, random: np.random.Generator, count: int) -> Ids:
        capacity = self.plan.capacity
        hot = Zipf(capacity.hot_ids, capacity.zipf).ranks(random.random(count)) - 1
        kind = random.random(count)
        stored = random.integers(capacity.hot_ids, self.stored, size=count)
        ids = stored_ids(capacity, np.where(kind < capacity.stored_share, stored, hot))
        new = kind >= 1 - capacity.new_share
        ids[new] = random.integers(self.space, size=int(new.sum()))
        return ids


def stored_ids(plan: CapacityJob, places: Ids) -> Ids:
    """The ids that have rows, by number. They are in the smallest space, and so in each of the others."""
    space = min(plan.spaces)
    if math.gcd(SCATTER, space) != 1:
        raise ValueError(f"{SCATTER} and the smallest space, {space}, have a common divisor: stored ids would repeat")
    return (places * SCATTER) % space
