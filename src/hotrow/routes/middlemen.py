"""Which GPU forwards the bytes of each pair without a link, so that the exchange of all pairs ends first.

A pair's bytes pass one link in each phase. Bytes of linked pairs fill what forwarding leaves free of either phase, so
an exchange takes max(F1 + F2, L): F1 and F2 are the largest times of forwarded bytes on a link in each phase, L the
largest time of all bytes of a link. A greedy choice with single changes is improved by branch and bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hotrow.routes.fabric import Fabric, Pair, Sends

NODES_MAX = 60_000  # of branch and bound, about 0.2 s
PAIRS_MAX = 400  # of branch and bound, which is recursive
LESS = 1 - 1e-12  # a time that is smaller by more than rounding

Key = tuple[float, int, float]  # seconds, bytes of the largest buffers of a GPU, unevenness of the links


@dataclass(frozen=True, slots=True)
class Choice:
    """A middleman for each pair."""

    middlemen: Mapping[Pair, int]
    proven: bool  # no other choice is faster


def choose_middlemen(fabric: Fabric, forwarded: Sends, linked: Sends, first_s: float = 0.0) -> Choice:
    """The fastest choice found. Single changes make its largest buffers smaller where it stays as fast.

    `first_s` is what phase 1 takes anyhow. Every forwarded pair has a candidate; of equal ones the first is taken.
    """
    loads = _Loads(fabric, linked, first_s)
    candidates = {pair: fabric.candidates(pair) for pair in sorted(forwarded)}
    chosen: dict[Pair, int] = {}
    for pair in sorted(forwarded, key=lambda each: (len(candidates[each]), -forwarded[each], each)):
        chosen[pair] = min(candidates[pair], key=lambda gpu: loads.key_with(pair, gpu, forwarded[pair]))
        loads.add(pair, chosen[pair], forwarded[pair])
    _improve(loads, chosen, candidates, forwarded)
    search = _Search(loads, candidates, forwarded, loads.key()[0])
    for pair, gpu in chosen.items():
        loads.add(pair, gpu, -forwarded[pair])
    proven = search.run()
    chosen = search.best or chosen
    for pair, gpu in chosen.items():
        loads.add(pair, gpu, forwarded[pair])
    _improve(loads, chosen, candidates, forwarded)
    return Choice(dict(sorted(chosen.items())), proven)


def _improve(loads: "_Loads", chosen: dict[Pair, int], candidates: Mapping[Pair, Sequence[int]], sizes: Sends) -> None:
    """Change one middleman at a time while that helps. The key falls with every change, so this ends."""
    changed = True
    while changed:
        changed = False
        for pair, gpus in candidates.items():
            current = chosen[pair]
            key = loads.key()
            loads.add(pair, current, -sizes[pair])
            best = min(gpus, key=lambda gpu: (loads.key_with(pair, gpu, sizes[pair]), gpu))
            if best != current and loads.key_with(pair, best, sizes[pair]) < key:
                chosen[pair], changed = best, True
            loads.add(pair, chosen[pair], sizes[pair])


class _Loads:
    """Bytes on each link, and through each GPU where its ports have a rate, by phase."""

    def __init__(self, fabric: Fabric, linked: Sends, first_s: float) -> None:
        self.places, self.first_s = fabric.places, first_s
        self.per_byte = [1 / rate if rate else 0.0 for rate in fabric.rates()]
        self.first, self.second, self.total = ([0] * len(self.per_byte) for _ in range(3))
        self.buffers = [0] * fabric.gpus
        for pair, size in linked.items():
            for place in self.places(pair):
                self.total[place] += size

    def add(self, pair: Pair, gpu: int, size: int) -> None:
        """Forward a pair's bytes by a GPU; a negative size takes them back."""
        for place in self.places((pair[0], gpu)):
            self.first[place] += size
            self.total[place] += size
        for place in self.places((gpu, pair[1])):
            self.second[place] += size
            self.total[place] += size
        self.buffers[gpu] += size

    def key_with(self, pair: Pair, gpu: int, size: int) -> Key:
        """The key if a GPU forwarded a pair's bytes too."""
        self.add(pair, gpu, size)
        key = self.key()
        self.add(pair, gpu, -size)
        return key

    def key(self) -> Key:
        """What is compared, smaller is better."""
        totals = self._times(self.total)
        seconds = max(max(self.first_s, *self._times(self.first)) + max(self._times(self.second)), *totals)
        return seconds, max(self.buffers), sum(each * each for each in totals)

    def _times(self, sizes: Sequence[int]) -> list[float]:
        return [size * each for size, each in zip(sizes, self.per_byte, strict=True)]


@dataclass(slots=True)
class _Search:
    """Branch and bound: loads only grow along a branch, so the time of a part is a bound of the whole."""

    loads: _Loads
    candidates: Mapping[Pair, Sequence[int]]
    sizes: Sends
    seconds: float  # of the best choice
    best: dict[Pair, int] | None = None
    nodes: int = 0
    _pairs: list[Pair] = field(default_factory=list)

    def run(self) -> bool:
        """Whether the whole tree was searched; `best` is set where something faster was found."""
        self._pairs = list(self.candidates)
        if len(self._pairs) > PAIRS_MAX:
            return False
        start = max(size * each for size, each in zip(self.loads.total, self.loads.per_byte, strict=True))
        self._branch({}, self.loads.first_s, 0.0, start)
        return self.nodes <= NODES_MAX

    def _branch(self, chosen: dict[Pair, int], first_s: float, second_s: float, total_s: float) -> None:
        if max(first_s + second_s, total_s) >= self.seconds * LESS or self.nodes > NODES_MAX:
            return
        if len(chosen) == len(self._pairs):
            self.seconds, self.best = max(first_s + second_s, total_s), dict(chosen)
            return
        loads, pair = self.loads, self._pairs[len(chosen)]
        for gpu in self.candidates[pair]:
            self.nodes += 1
            loads.add(pair, gpu, self.sizes[pair])
            into, out = loads.places((pair[0], gpu)), loads.places((gpu, pair[1]))
            chosen[pair] = gpu
            self._branch(
                chosen,
                max(first_s, *(loads.first[place] * loads.per_byte[place] for place in into)),
                max(second_s, *(loads.second[place] * loads.per_byte[place] for place in out)),
                max(total_s, *(loads.total[place] * loads.per_byte[place] for place in into + out)),
            )
            del chosen[pair]
            loads.add(pair, gpu, -self.sizes[pair])
