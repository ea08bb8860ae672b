"""The share of the cache's decisions in a cached step, in processor time of the thread.

Decisions: `RowCache.announce` of policy "ahead", `begin`, `receive` and `finish`; the reply is made outside of the
clock. A step: the distinct ids of a batch, the decisions, reading rows, the network forward and backward with the
gather and scatter of rows, and the update of rows with SGD. The network is WDL as in HET's Table 3: numbers through
three layers of 256, their output beside all rows into one logit; 137,984 parameters at 26 ids of dim 128.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hotrow.bench.cache.cells import cache_of
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.skew import weights
from hotrow.bench.ids import keys_of
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.cache.cache import Announced, RowCache
from hotrow.cache.exchange import CacheReply
from hotrow.config import Cache, Table
from hotrow.optim.sparse import SGD
from hotrow.store import Rows
from hotrow.store.arrays import Keys
from hotrow.store.shards import Sharded, sharded

T = TypeVar("T")

NEVER_STALE = 2**31
EXPONENT = 1.05
POLICIES = ("lru", "lfu", "light_lfu", "ahead")
DECISIONS = ("announce", "begin", "receive", "finish")
NUMBERS, HIDDEN = 13, 256
MISSES_STALENESS = 10


class WideNetwork(nn.Module):
    """Numbers through a deep part; rows go to the logit as they are."""

    def __init__(self, plan: CachePlan) -> None:
        super().__init__()
        wide = plan.features * plan.dim
        self.deep = nn.Sequential(
            nn.Linear(NUMBERS, HIDDEN, bias=False), nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN, bias=False), nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN, bias=False), nn.ReLU(),
        )  # fmt: skip
        self.logit = nn.Linear(HIDDEN + wide, 1, bias=False)

    def forward(self, numbers: Tensor, rows: Tensor) -> Tensor:
        logit: Tensor = self.logit(torch.cat([self.deep(numbers), rows.flatten(1)], dim=1))
        return logit


def reply_to(checked: int, fetched: Keys, dim: int) -> CacheReply:
    """Of a server that sends the rows it is asked for, and finds all others valid."""
    values = np.zeros((len(fetched), dim), np.float32)
    rows = Rows(fetched, values, values[:, :0], {"clock": np.ones(len(fetched), np.uint32)})
    return CacheReply(np.zeros(checked, np.bool_), rows)


class CachedSteps:
    """Training of one worker, with the processor time of each part of a step."""

    def __init__(self, plan: CachePlan, cache: Cache) -> None:
        self.cache = RowCache(Table(dim=plan.dim, optimizer=SGD(lr=1e-6), cache=cache), cache)
        self.spent: defaultdict[str, float] = defaultdict(float)  # seconds, by part
        self._plan = plan
        self._known: deque[tuple[Sharded, Announced]] = deque()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed)
            self._network = WideNetwork(plan)
            self._numbers, self._labels = torch.rand(plan.samples, NUMBERS), torch.rand(plan.samples, 1)

    def step(self, ids: Keys, coming: Sequence[Keys] = ()) -> None:
        """One batch: `ids` [samples x features], with duplicates. `coming`: those that follow."""
        plan, cache = self._plan, self.cache
        found, announced = self._distinct(ids, coming)
        batch = self._timed("begin", lambda: cache.begin(found.keys, samples=0, announced=announced))
        reply = reply_to(len(batch.request.checked), batch.request.fetched, plan.dim)
        self._timed("receive", lambda: cache.receive(batch, reply))
        out = np.empty((len(found.keys), plan.dim), np.float32)
        self._timed("read", lambda: cache.read(batch, out))
        gradients = self._timed("network", lambda: self._gradients(out, found.inverse))
        ones = np.ones(len(found.keys), np.float32)
        self._timed("update", lambda: cache.apply(batch, gradients, ones, samples=0))
        self._timed("finish", lambda: cache.finish(batch))

    def _distinct(self, ids: Keys, coming: Sequence[Keys]) -> tuple[Sharded, Announced | None]:
        """Distinct ids; policy "ahead" is told those of its window too."""
        for later in [ids, *coming][len(self._known) :]:
            if not self.cache.window_left:
                break
            self._known.append(self._announce(later))
        return self._known.popleft() if self._known else (self._timed("unique", lambda: sharded(ids, 1)), None)

    def _announce(self, ids: Keys) -> tuple[Sharded, Announced]:
        found = self._timed("unique", lambda: sharded(ids, 1))
        return found, self._timed("announce", lambda: self.cache.announce(found.keys))

    def _gradients(self, rows: NDArray[np.float32], inverse: NDArray[np.integer]) -> NDArray[np.float32]:
        plan = self._plan
        self._network.zero_grad()
        values = torch.from_numpy(rows).requires_grad_()
        used = values[torch.from_numpy(inverse.astype(np.int64))].view(plan.samples, plan.features, plan.dim)
        loss = nn.functional.binary_cross_entropy_with_logits(self._network(self._numbers, used), self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
        assert values.grad is not None
        gradients: NDArray[np.float32] = values.grad.numpy()
        return gradients

    def _timed(self, part: str, run: Callable[[], T]) -> T:
        start = time.thread_time()
        found = run()
        self.spent[part] += time.thread_time() - start
        return found


def measure(plan: CachePlan, watch: BenchProgress) -> Figures:
    """All policies, on batches that only hit and on batches with misses and s = 10, in turns."""
    batches = batches_of(plan)
    caches = {
        f"{stream}_{policy}": cache_of(plan, plan.oracle_rows, policy, staleness, size=size)
        for policy in POLICIES
        for stream, staleness, size in (("hits", NEVER_STALE, 1.0), ("misses", MISSES_STALENESS, plan.size))
    }
    figures: Figures = {}
    for name, cache in caches.items():
        watch.stage(f"decisions, {name}", plan.hit_rounds)
        steps = CachedSteps(plan, cache)
        with closing(steps.cache):
            figures |= _figures(plan, name, steps, batches, watch)
    shares = [figures[f"decision_share_{name}"] for name in caches]
    return figures | {"decision_share": max(share for share in shares if share is not None)}


def batches_of(plan: CachePlan) -> list[Keys]:
    """Ids of one worker's batches, drawn from a Zipf law."""
    rng = np.random.default_rng(plan.seed)
    cumulative = np.cumsum(weights(plan.oracle_rows, EXPONENT))
    keys = keys_of(rng.permutation(plan.oracle_rows))
    drawn = rng.random((plan.hit_batches, plan.ids)) * cumulative[-1]
    ranks = np.searchsorted(cumulative, drawn, side="right").clip(max=plan.oracle_rows - 1)
    return list(keys[ranks])


def _figures(plan: CachePlan, name: str, steps: CachedSteps, batches: Sequence[Keys], watch: BenchProgress) -> Figures:
    """Medians of the rounds; the round before them fills the cache."""
    rounds: list[Mapping[str, float]] = []
    for turn in range(plan.hit_rounds + 1):
        steps.spent = defaultdict(float)
        before = (steps.cache.counts.misses, steps.cache.counts.ahead)
        for number, ids in enumerate(batches, 1):
            steps.step(ids, batches[number : number + plan.window])
        if turn:
            rounds.append(steps.spent)
            watch.tick()
    absent, ahead = steps.cache.counts.misses - before[0], steps.cache.counts.ahead - before[1]
    distinct = sum(len(np.unique(ids)) for ids in batches)
    found: Figures = {
        f"decision_share_{name}": float(np.median([decision_share(each) for each in rounds])),
        f"decision_{name}_missed": absent / distinct,
        f"decision_{name}_refreshed": ahead / distinct,
    }
    for part in rounds[0]:
        median = float(np.median([each[part] for each in rounds]))
        found[f"decision_{name}_{part}_us"] = 1e6 * median / len(batches)
    return found


def decision_share(spent: Mapping[str, float]) -> float:
    """Of the seconds by part."""
    return sum(spent.get(part, 0.0) for part in DECISIONS) / sum(spent.values())
