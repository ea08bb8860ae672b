"""Fabrics and exchanges, for hypothesis and by seed."""

import random

from hypothesis import strategies as st

from hotrow.routes import Fabric, HostPaths

Sizes = list[list[int]]


@st.composite
def exchanges(draw: st.DrawFn, gpus_max: int = 6, *, host: bool = True, size_max: int = 2_000) -> tuple[Fabric, Sizes]:
    """Links in either direction or both, some of them missing, and bytes of each pair."""
    gpus = draw(st.integers(1, gpus_max))
    rates = st.sampled_from([0.0, 0.0, 12.5, 25.0, 50.0, 37.3])
    symmetric = draw(st.booleans())
    links = [[0.0] * gpus for _ in range(gpus)]
    for source in range(gpus):
        for target in range(source):
            links[source][target] = draw(rates)
            links[target][source] = links[source][target] if symmetric else draw(rates)
    sockets = tuple(draw(st.lists(st.integers(0, 1), min_size=gpus, max_size=gpus)))
    paths = HostPaths(sockets, tuple(range(gpus)), staged=draw(st.booleans())) if host else None
    port = draw(st.sampled_from([None, None, 40.0]))
    sizes = st.integers(0, size_max)
    if draw(st.booleans()):
        size = draw(sizes)
        sizes = st.just(size)
    sent = [[0 if source == target else draw(sizes) for target in range(gpus)] for source in range(gpus)]
    return Fabric(tuple(map(tuple, links)), paths, port), sent


def mesh(links: dict[tuple[int, int], float], gpus: int, host: HostPaths | None = None) -> Fabric:
    """Links in both directions."""
    rates = [[0.0] * gpus for _ in range(gpus)]
    for (one, other), rate in links.items():
        rates[one][other] = rates[other][one] = rate
    return Fabric(tuple(map(tuple, rates)), host)


def seeded_exchange(seed: int, gpus: int = 6, choices_max: int = 1_500) -> tuple[Fabric, Sizes]:
    """Symmetric links and bytes of as many pairs as leave so many choices of middlemen."""
    drawn, rates = random.Random(seed), [0.0, 25.0, 50.0, 25.0]
    fabric = mesh({(one, other): drawn.choice(rates) for one in range(gpus) for other in range(one)}, gpus)
    sizes, choices = [[0] * gpus for _ in range(gpus)], 1
    for source in range(gpus):
        for target in range(gpus):
            ways = 1 if fabric.linked((source, target)) else len(fabric.candidates((source, target)))
            if source != target and ways and choices * ways <= choices_max:
                choices *= ways
                sizes[source][target] = drawn.randrange(1, 5) * 10**6
    return fabric, sizes
