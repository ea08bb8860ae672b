"""The plan of an exchange between the GPUs of a node: routes, copies of two phases, buffers and times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hotrow.errors import InputError
from hotrow.routes.fabric import Fabric, Pair, Sends
from hotrow.routes.middlemen import choose_middlemen

BYTES_MAX = 2**62
ALIGNMENT = 256  # bytes; where a linked pair's bytes are cut between the phases: GPUs copy whole lines faster

RouteKind = Literal["direct", "forwarded", "host"]


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one pair's bytes. A host route is for pairs that no GPU has links to."""

    source: int
    target: int
    size: int  # bytes
    kind: RouteKind
    middleman: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of what `source` sends to `target`, from `offset` on."""

    source: int
    target: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy from GPU `src` to GPU `dst`."""

    src: int
    dst: int
    block: Block
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Phase:
    """Copies that run at the same time."""

    copies: tuple[Copy, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ForwardBuffer:
    """Memory on a middleman: holds a pair's bytes from phase 1 to phase 2."""

    gpu: int
    source: int
    target: int
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """What to copy when, and the times by arithmetic: bytes by rates, without a fixed cost of a copy."""

    fabric: Fabric
    routes: tuple[Route, ...]
    phases: tuple[Phase, Phase]
    buffers: tuple[ForwardBuffer, ...]
    direct_s: float | None  # pairs without a link over the host; None: the way over the host is not known
    proven: bool  # no other choice of one middleman for each pair is faster

    @property
    def two_phase_s(self) -> float:
        """Both phases."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def saved(self) -> float | None:
        """The share of the direct time that two phases save; below 0 where they take longer."""
        return None if not self.direct_s else 1 - self.two_phase_s / self.direct_s

    @property
    def buffer_bytes(self) -> tuple[int, ...]:
        """Bytes of forward buffers on each GPU."""
        return tuple(
            sum(buffer.size for buffer in self.buffers if buffer.gpu == gpu) for gpu in range(self.fabric.gpus)
        )


def plan_routes(
    fabric: Fabric, size: int | Sequence[Sequence[int]], middlemen: Mapping[Pair, int] | None = None
) -> RoutePlan:
    """Plan an exchange of `size` bytes from every GPU to every other one, or of size[source][target].

    `middlemen` sets them by hand, for all pairs without a link.
    """
    sends = _sends(fabric.gpus, size)
    linked = {pair: each for pair, each in sends.items() if fabric.linked(pair)}
    others = {pair: each for pair, each in sends.items() if pair not in linked}
    over_host = {pair: each for pair, each in others.items() if not fabric.candidates(pair)}
    forwarded = {pair: each for pair, each in others.items() if pair not in over_host}
    _check_reachable(fabric, over_host)
    host_s = 0.0 if fabric.host is None else fabric.host.seconds(over_host)
    if middlemen is not None:
        _check_middlemen(fabric, forwarded, middlemen)
        chosen, proven = {pair: middlemen[pair] for pair in forwarded}, False
    elif forwarded:
        choice = choose_middlemen(fabric, forwarded, linked, host_s)
        # Where ports have a rate, bytes of linked pairs are split greedily, and the time of the search is only a bound.
        chosen, proven = dict(choice.middlemen), choice.proven and fabric.port_gbps is None
    else:
        chosen, proven = {}, True
    routes = tuple(
        Route(*pair, each, "direct" if pair in linked else "forwarded" if pair in chosen else "host", chosen.get(pair))
        for pair, each in sends.items()
    )
    first, second = _schedule(fabric, routes, host_s)
    phases = (
        Phase(first, max(host_s, _seconds(fabric, first))),
        Phase(second, _seconds(fabric, second)),
    )
    buffers = tuple(ForwardBuffer(chosen[pair], *pair, each) for pair, each in forwarded.items())
    return RoutePlan(fabric, routes, phases, buffers, _direct_s(fabric, linked, others), proven)


def _schedule(fabric: Fabric, routes: Sequence[Route], host_s: float) -> tuple[tuple[Copy, ...], tuple[Copy, ...]]:
    """Forwarded bytes in both phases; those of linked pairs first fill the time that phase 1 takes anyhow."""
    first, second = [], []
    for route in routes:
        block = Block(route.source, route.target)
        if route.kind == "host":
            first.append(Copy(route.source, route.target, block, route.size))
        elif route.middleman is not None:
            first.append(Copy(route.source, route.middleman, block, route.size))
            second.append(Copy(route.middleman, route.target, block, route.size))
    forwards = [((copy.src, copy.dst), copy.size) for copy in first if fabric.linked((copy.src, copy.dst))]
    room = _Room(fabric, forwards, max(host_s, fabric.seconds(forwards)))
    for route in routes:
        if route.kind != "direct":
            continue
        now = route.size if not second else room.take((route.source, route.target), route.size)
        if now:
            first.append(Copy(route.source, route.target, Block(route.source, route.target), now))
        if now < route.size:
            rest = Block(route.source, route.target, now)
            second.append(Copy(route.source, route.target, rest, route.size - now))
    return tuple(first), tuple(second)


class _Room:
    """Bytes that links, and ports where they have a rate, still take within the time of phase 1."""

    def __init__(self, fabric: Fabric, forwards: Sequence[tuple[Pair, int]], seconds: float) -> None:
        self._places = fabric.places
        self._left = [int(rate * seconds) for rate in fabric.rates()]
        for pair, size in forwards:
            self._use(pair, size)

    def take(self, pair: Pair, size: int) -> int:
        """So many bytes of a pair go into phase 1; the others are cut off at a whole line."""
        room = max(0, min(self._left[place] for place in self._places(pair)))
        taken = size if room >= size else room // ALIGNMENT * ALIGNMENT
        self._use(pair, taken)
        return taken

    def _use(self, pair: Pair, size: int) -> None:
        for place in self._places(pair):
            self._left[place] -= size


def _seconds(fabric: Fabric, copies: Sequence[Copy]) -> float:
    hops = [((copy.src, copy.dst), copy.size) for copy in copies]
    return fabric.seconds((pair, size) for pair, size in hops if fabric.linked(pair))


def _direct_s(fabric: Fabric, linked: Sends, others: Sends) -> float | None:
    if others and fabric.host is None:
        return None
    host_s = 0.0 if fabric.host is None else fabric.host.seconds(others)
    return max(fabric.seconds(linked.items()), host_s)


def _sends(gpus: int, size: int | Sequence[Sequence[int]]) -> dict[Pair, int]:
    """Bytes by pair, without pairs that send nothing."""
    if isinstance(size, int):
        size = [[0 if source == target else size for target in range(gpus)] for source in range(gpus)]
    if len(size) != gpus or any(len(row) != gpus for row in size):
        shape = f"{len(size)} rows of {sorted({len(row) for row in size})}"
        raise InputError(f"size: has {shape} and links {gpus} GPUs: give {gpus} rows of {gpus}, or one number")
    for source, row in enumerate(size):
        for target, each in enumerate(row):
            if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= BYTES_MAX:
                raise InputError(f"size[{source}][{target}]={each!r}: must be whole bytes from 0 to {BYTES_MAX:,}")
        if row[source]:
            raise InputError(f"size[{source}][{source}]={row[source]}: a GPU sends itself nothing: write 0")
    return {(source, target): each for source, row in enumerate(size) for target, each in enumerate(row) if each}


def _check_reachable(fabric: Fabric, over_host: Sends) -> None:
    if over_host and fabric.host is None:
        (source, target), more = min(over_host), len(over_host) - 1
        raise InputError(
            f"links[{source}][{target}]=0: no GPU has links to both{f' (and {more} pairs more)' if more else ''}: "
            "correct the matrix, or give Fabric.host, so that such pairs go over the host"
        )


def _check_middlemen(fabric: Fabric, forwarded: Sends, middlemen: Mapping[Pair, int]) -> None:
    for pair in {**forwarded, **middlemen}:
        known = () if fabric.linked(pair) else fabric.candidates(pair)
        if middlemen.get(pair) not in known:
            having = f"one of {', '.join(map(str, known))}" if known else "none, leave the pair out"
            raise InputError(f"middlemen[{pair}]={middlemen.get(pair)}: must have links to both: {having}")
