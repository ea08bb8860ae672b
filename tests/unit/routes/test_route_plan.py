"""A route plan is as fast as the best of all choices of middlemen, and its times are those of its copies."""

import pytest
from hypothesis import HealthCheck, given, settings

from hotrow.errors import HotrowError
from hotrow.reproduce.kstep_routes import paper_node
from hotrow.routes import Fabric, HostPaths, Pair, middlemen, plan_routes
from hotrow.routes.plan import ALIGNMENT
from oracles.routes import best_seconds, exchange_seconds
from unit.routes.drawn_fabrics import Sizes, exchanges, mesh, seeded_exchange

SLOWEST = 12.5e9  # bytes a second of the slowest link that is drawn


def sends_of(sizes: Sizes) -> dict[Pair, int]:
    return {(i, j): size for i, row in enumerate(sizes) for j, size in enumerate(row) if size}


@settings(suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(exchanges(gpus_max=5, size_max=10**9))
def test_no_choice_of_middlemen_is_faster(drawn: tuple[Fabric, Sizes]) -> None:
    fabric, sizes = Fabric(drawn[0].links, drawn[0].host), drawn[1]
    reachable = [
        [size if fabric.linked((i, j)) or fabric.candidates((i, j)) else 0 for j, size in enumerate(row)]
        for i, row in enumerate(sizes)
    ]
    sends = sends_of(reachable)
    choices = 1
    for pair in sends:
        choices *= 1 if fabric.linked(pair) else len(fabric.candidates(pair))
    if choices > 300:
        reachable[0] = [0] * fabric.gpus
        sends = {pair: size for pair, size in sends.items() if pair[0]}
    plan = plan_routes(fabric, reachable)
    assert plan.proven
    best = float(best_seconds(fabric, sends))
    assert best * (1 - 1e-9) <= plan.two_phase_s <= best * (1 + 1e-9) + ALIGNMENT / SLOWEST


@pytest.mark.parametrize("seed", [77, 154, 214, 267])
def test_where_single_changes_end_too_early_the_search_goes_on(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, sizes = seeded_exchange(seed)
    best = float(best_seconds(fabric, sends_of(sizes)))
    plan = plan_routes(fabric, sizes)
    assert plan.proven
    assert plan.two_phase_s == pytest.approx(best, rel=1e-3)
    monkeypatch.setattr(middlemen, "NODES_MAX", 0)
    cut = plan_routes(fabric, sizes)
    assert not cut.proven
    assert cut.two_phase_s > 1.05 * best, "else this seed shows nothing"


@settings(deadline=None)
@given(exchanges())
def test_phases_carry_every_byte_over_links_and_take_the_time_of_the_busiest(drawn: tuple[Fabric, Sizes]) -> None:
    fabric, sizes = drawn
    plan = plan_routes(fabric, sizes)
    assert fabric.host is not None
    over_host = {(each.source, each.target): each.size for each in plan.routes if each.kind == "host"}
    for number, phase in enumerate(plan.phases):
        loads: dict[tuple[str, int, int], float] = {}
        for copy in phase.copies:
            if (copy.src, copy.dst) in over_host:
                continue
            rate = fabric.links[copy.src][copy.dst]
            assert rate > 0, "a copy needs a link"
            assert copy.size > 0
            for place, each in (
                (("link", copy.src, copy.dst), rate),
                (("out", copy.src, -1), fabric.port_gbps),
                (
                    ("in", -1, copy.dst),
                    fabric.port_gbps,
                ),
            ):
                loads[place] = loads.get(place, 0) + (copy.size / each / 1e9 if each else 0)
        waits = fabric.host.seconds(over_host) if number == 0 else 0.0
        assert phase.seconds == pytest.approx(max(waits, *loads.values(), 0.0) if loads else waits)
    if not plan.buffers:
        assert plan.phases[1].copies == ()


@given(exchanges())
@settings(deadline=None)
def test_a_plan_does_not_depend_on_anything_but_its_input(drawn: tuple[Fabric, Sizes]) -> None:
    assert plan_routes(*drawn) == plan_routes(*drawn)


def test_of_equal_middlemen_the_first_is_taken() -> None:
    square = mesh({(0, 1): 25, (1, 3): 25, (0, 2): 25, (2, 3): 25}, 4)
    plan = plan_routes(square, [[0, 0, 0, 1_000], [0] * 4, [0] * 4, [0] * 4])
    assert [route.middleman for route in plan.routes] == [1]


def test_the_faster_of_two_middlemen_is_taken_and_a_busy_one_is_not() -> None:
    square = mesh({(0, 1): 25, (1, 3): 25, (0, 2): 50, (2, 3): 50}, 4)
    alone = plan_routes(square, [[0, 0, 0, 1_000], [0] * 4, [0] * 4, [0] * 4])
    assert alone.routes[0].middleman == 2
    busy = plan_routes(square, [[0, 0, 9_000, 1_000], [0] * 4, [0] * 4, [0] * 4])
    assert {route.middleman for route in busy.routes if route.kind == "forwarded"} == {1}


def test_pairs_are_spread_over_equal_middlemen() -> None:
    """A ring of four: the two pairs across have two ways each, in both directions."""
    ring = mesh({(0, 1): 25, (1, 2): 25, (2, 3): 25, (3, 0): 25}, 4)
    plan = plan_routes(ring, 1_000_000)
    assert plan.buffer_bytes == (1_000_000,) * 4
    assert plan.two_phase_s == pytest.approx(2 * 1_000_000 / 25e9, rel=1e-3)


def test_bytes_of_linked_pairs_fill_what_forwarding_leaves_free() -> None:
    """0 - 1 - 2: link 0 -> 1 carries two pairs in phase 1, and its own bytes go on in phase 2."""
    line = mesh({(0, 1): 1, (1, 2): 1}, 3)
    sizes = [[0, 4_096, 8_192], [0, 0, 0], [0, 0, 0]]
    plan = plan_routes(line, sizes)
    assert [[(copy.src, copy.dst, copy.size) for copy in phase.copies] for phase in plan.phases] == [
        [(0, 1, 8_192)],
        [(1, 2, 8_192), (0, 1, 4_096)],
    ]
    assert plan.two_phase_s == pytest.approx(2 * 8_192 / 1e9)
    sizes[0][1] = 16_384
    assert plan_routes(line, sizes).two_phase_s == pytest.approx((16_384 + 8_192) / 1e9)


def test_the_paper_node_has_six_links_a_gpu_and_its_best_plan_is_proven() -> None:
    node = paper_node()
    assert [sum(row) / 25 for row in node.links] == [6] * 8
    plan = plan_routes(node, 100 * 2**20)
    unit = 100 * 2**20 / 25e9
    assert plan.two_phase_s / unit == pytest.approx(3)
    assert plan.proven
    assert sum(route.kind == "forwarded" for route in plan.routes) == 24
    fixed = {pair: pair[1] % 4 + pair[0] // 4 * 4 for pair in forwarded_pairs(node)}
    paper = plan_routes(node, 100 * 2**20, fixed)
    assert paper.two_phase_s / unit == pytest.approx(4)
    sends = sends_of([[0 if i == j else 10**6 for j in range(8)] for i in range(8)])
    assert float(exchange_seconds(node, sends, fixed)) == pytest.approx(4 * 10**6 / 25e9)


def forwarded_pairs(fabric: Fabric) -> list[Pair]:
    pairs = [(i, j) for i in range(fabric.gpus) for j in range(fabric.gpus) if i != j]
    return [pair for pair in pairs if not fabric.linked(pair)]


def test_pairs_that_no_gpu_has_links_to_go_over_the_host() -> None:
    host = HostPaths((0, 0, 1), (0, 0, 1), pcie_gbps=10, socket_gbps=20)
    plan = plan_routes(mesh({(0, 1): 25}, 3, host), 1_000_000)
    assert [route.kind for route in plan.routes].count("host") == 4
    assert plan.two_phase_s == plan.direct_s == pytest.approx(2e6 / 10e9 + 2e6 / 20e9 + 2e6 / 10e9)
    assert plan.saved == 0


def test_the_way_over_the_host_takes_its_copies_one_after_the_other_or_all_at_once() -> None:
    sends = {(0, 2): 30, (1, 2): 10, (0, 1): 5}
    kinds = [HostPaths((0, 0, 1), (0, 0, 1), pcie_gbps=1, socket_gbps=2, staged=staged) for staged in (True, False)]
    assert kinds[0].seconds(sends) == pytest.approx((40 + 20 + 40) / 1e9)
    assert kinds[1].seconds(sends) == pytest.approx(40 / 1e9)
    assert kinds[0].seconds({(0, 1): 5}) == pytest.approx(10 / 1e9), "within a switch"


def test_a_switch_limits_what_a_gpu_sends_to_all_others() -> None:
    full = tuple(tuple(0.0 if i == j else 450.0 for j in range(8)) for i in range(8))
    plan = plan_routes(Fabric(full, port_gbps=450.0), 450_000_000)
    assert plan.two_phase_s == plan.direct_s == pytest.approx(7e-3)
    assert (plan.buffers, plan.phases[1].copies, plan.proven) == ((), (), True)
    assert plan_routes(Fabric(full), 450_000_000).two_phase_s == pytest.approx(1e-3)


def test_with_ports_a_choice_of_middlemen_is_not_proven() -> None:
    line = mesh({(0, 1): 25, (1, 2): 25}, 3)
    plan = plan_routes(Fabric(line.links, port_gbps=25), 1_000_000)
    assert not plan.proven
    assert plan.two_phase_s == pytest.approx(4e6 / 25e9), "GPU 1 sends two pairs' bytes of its own and two others"


def test_a_single_gpu_exchanges_nothing() -> None:
    plan = plan_routes(Fabric(((0.0,),)), 1_000)
    assert (plan.routes, plan.two_phase_s, plan.saved, plan.buffer_bytes) == ((), 0, None, (0,))


LINE = mesh({(0, 1): 25, (1, 2): 25}, 3)
FAULTS = {
    "links: has 0 rows: give one for each GPU of a host, 1 to 32": lambda: Fabric(()),
    "links[1]: has 1 rates and the matrix 2 rows: it must be square": lambda: Fabric(((0, 1), (1,))),
    "links[0][1]=-1: must be a rate in GB/s, 0 where there is no link": lambda: Fabric(((0, -1), (1, 0))),
    "links[0][1]=nan: must be a rate": lambda: Fabric(((0, float("nan")), (1, 0))),
    "links[1][1]=5: a GPU has no link to itself: write 0": lambda: Fabric(((0, 1), (1, 5))),
    "Fabric.port_gbps=0: must be above 0, in GB/s": lambda: Fabric(((0, 1), (1, 0)), port_gbps=0),
    "Fabric.host: has sockets of 1 GPUs and links have 2": lambda: Fabric(((0, 1), (1, 0)), HostPaths((0,), (0,))),
    "HostPaths.pcie_gbps=inf: must be above 0": lambda: HostPaths((0,), (0,), pcie_gbps=float("inf")),
    "HostPaths.switches: has 2 GPUs and sockets 1": lambda: HostPaths((0,), (0, 1)),
    "HostPaths.switches: switch 0 is on sockets 0 and 1": lambda: HostPaths((0, 1), (0, 0)),
    "links[0][2]=0: no GPU has links to both (and 3 pairs more): correct": lambda: plan_routes(
        mesh({(0, 1): 25}, 3), 10
    ),
    "size[0][1]=-1: must be whole bytes from 0": lambda: plan_routes(LINE, -1),
    "size[0][1]=1.5: must be whole bytes": lambda: plan_routes(LINE, [[0, 1.5, 0], [0] * 3, [0] * 3]),  # type: ignore[list-item]
    "size: has 2 rows of [2] and links 3 GPUs": lambda: plan_routes(LINE, [[0, 1], [1, 0]]),
    "size[1][1]=3: a GPU sends itself nothing": lambda: plan_routes(LINE, [[0] * 3, [0, 3, 0], [0] * 3]),
    "middlemen[(0, 2)]=None: must have links to both: one of 1": lambda: plan_routes(LINE, 10, {}),
    "middlemen[(0, 1)]=2: must have links to both: none, leave": lambda: plan_routes(
        LINE, 10, {(0, 1): 2, (0, 2): 1, (2, 0): 1}
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", FAULTS)
def test_a_bad_matrix_gets_a_sentence(sentence: str) -> None:
    with pytest.raises(HotrowError) as raised:
        FAULTS[sentence]()  # type: ignore[no-untyped-call]
    assert str(raised.value).startswith(sentence)
