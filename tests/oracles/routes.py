"""Slow twins of `hotrow.routes`: the best exchange over all choices of middlemen, in fractions, and memory of GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

from hotrow.routes import Block, Fabric, Pair, RoutePlan


def exchange_seconds(fabric: Fabric, sends: Mapping[Pair, int], middlemen: Mapping[Pair, int]) -> Fraction:
    """The shortest time of both phases, with the bytes of linked pairs split between them as well as can be."""
    links = [(i, j) for i in range(fabric.gpus) for j in range(fabric.gpus) if fabric.links[i][j]]
    rate = {(i, j): Fraction(fabric.links[i][j]) * 10**9 for i, j in links}
    first, second = ({link: Fraction(0) for link in links} for _ in range(2))
    for (source, target), middleman in middlemen.items():
        first[source, middleman] += sends[source, target] / rate[source, middleman]
        second[middleman, target] += sends[source, target] / rate[middleman, target]
    own = {link: sends.get(link, 0) / rate[link] for link in links}
    return min(_with_first_phase(end, first, second, own) for end in _ends(first, second, own))


def _ends(*times: Mapping[Pair, Fraction]) -> set[Fraction]:
    """Where the time of both phases, as a function of that of the first, can have its minimum."""
    first, second, own = times
    least = max(first.values(), default=Fraction(0))
    later = max(second.values(), default=Fraction(0))
    bends = {first[link] + own[link] for link in first} | {first[link] + second[link] + own[link] for link in first}
    return {least} | {end for each in bends for end in (each, each - later) if end > least}


def _with_first_phase(
    end: Fraction, first: Mapping[Pair, Fraction], second: Mapping[Pair, Fraction], own: Mapping[Pair, Fraction]
) -> Fraction:
    rest = (second[link] + max(Fraction(0), own[link] - (end - first[link])) for link in first)
    return end + max(rest, default=Fraction(0))


def best_seconds(fabric: Fabric, sends: Mapping[Pair, int]) -> Fraction:
    """Over all choices of one middleman for each pair without a link."""
    pairs = [pair for pair in sends if not fabric.linked(pair)]
    choices = product(*(fabric.candidates(pair) for pair in pairs))
    return min(exchange_seconds(fabric, sends, dict(zip(pairs, choice, strict=True))) for choice in choices)


@dataclass
class GpuMemory:
    """Bytes of pairs on each GPU: to send, forwarded and received. A copy fails where it reads what is not there."""

    sends: dict[Pair, bytes]
    received: dict[Pair, dict[int, int]] = field(default_factory=dict)  # by offset
    forwarded: dict[tuple[int, Pair], dict[int, int]] = field(default_factory=dict)
    started: list[tuple[dict[int, int], int, int]] = field(default_factory=list)  # what arrives at the end of a phase
    peaks: dict[int, int] = field(default_factory=dict)  # bytes of buffers on each GPU
    hops: set[Pair] = field(default_factory=set)

    def copy(self, src: int, dst: int, block: Block, size: int, /) -> None:
        pair = block.source, block.target
        self.hops.add((src, dst))
        target = (
            self.received.setdefault(pair, {}) if dst == block.target else self.forwarded.setdefault((dst, pair), {})
        )
        for offset in range(block.offset, block.offset + size):
            value = self.sends[pair][offset] if src == block.source else self.forwarded[src, pair][offset]
            self.started.append((target, offset, value))

    def wait(self) -> None:
        """Copies of a phase arrive in the worst order; a byte that arrives twice is an error."""
        for target, offset, value in reversed(self.started):
            assert offset not in target, "a byte was copied twice"
            target[offset] = value
        self.started.clear()
        held: dict[int, int] = {}
        for (gpu, _), values in self.forwarded.items():
            held[gpu] = held.get(gpu, 0) + len(values)
        for gpu, size in held.items():
            self.peaks[gpu] = max(self.peaks.get(gpu, 0), size)


def bytes_of(plan: RoutePlan) -> dict[Pair, bytes]:
    """Bytes that differ by pair and place."""
    return {
        (each.source, each.target): bytes(
            (31 * each.source + 17 * each.target + place) % 251 for place in range(each.size)
        )
        for each in plan.routes
    }
