"""Baidu's Fig. 6 to 8: two-phase routes in a node of eight GPUs, and GPUDirect RDMA between nodes. Arithmetic only.

The text gives the links of Fig. 1 in part: 0 has none to 5, 6 and 7; 0 - 2 has two, 0 - 3 and 1 - 3 have one; 1, 3, 5
and 7 have the wide ones between the sockets. With six links for each GPU, as a V100 has, that leaves one topology.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table
from hotrow.routes import Fabric, HostPaths, NodeNetwork, Pair, RoutePlan, plan_routes
from hotrow.routes.nvidia_topology import NVLINK_GBPS

LINKS = {(0, 1): 2, (0, 2): 2, (0, 3): 1, (1, 2): 1, (1, 3): 1, (2, 3): 2}  # of a socket; the other one has the same
LINKS_ACROSS = {0: 1, 1: 2, 2: 1, 3: 2}  # from GPU n to GPU n + 4
GPUS, SOCKET = 8, 4
SOCKETS = tuple(gpu // SOCKET for gpu in range(GPUS))
PAIR_BYTES = 64 * 2**20  # shares do not depend on it
NODES = (2, 4)
PAPER_PULL, PAPER_PUSH, PAPER_TRAINING = 0.90, 0.75, 0.54  # less time, at most
PAPER_RDMA = {2: 0.87, 4: 0.84}  # by nodes; section 5.4 has 1/6 and 1/8 of the time, the other way round
TITLES = {
    "staged": "over the host, copies one after the other",
    "at_once": "over the host, copies all at once",
    "paper": "two phases, middlemen of Fig. 3",
    "balanced": "two phases, balanced middlemen",
}


def paper_node(*, staged: bool = True) -> Fabric:
    """Fig. 1: two sockets, each with one PCIe switch of four GPUs."""
    counts = [[0] * GPUS for _ in range(GPUS)]
    for (one, other), links in LINKS.items():
        for base in (0, SOCKET):
            counts[base + one][base + other] = counts[base + other][base + one] = links
    for gpu, links in LINKS_ACROSS.items():
        counts[gpu][gpu + SOCKET] = counts[gpu + SOCKET][gpu] = links
    rates = tuple(tuple(links * NVLINK_GBPS for links in row) for row in counts)
    return Fabric(rates, HostPaths(SOCKETS, SOCKETS, staged=staged))


def paper_middlemen() -> dict[Pair, int]:
    """Fig. 3: the GPU of the source's socket that has a link to the target."""
    across = [
        (source, target) for source in range(GPUS) for target in range(GPUS) if SOCKETS[source] != SOCKETS[target]
    ]
    return {
        (source, target): target % SOCKET + SOCKETS[source] * SOCKET
        for source, target in across
        if source % SOCKET != target % SOCKET
    }


def run(quick: bool = False, *, tell: Tell = silent) -> dict[str, Any]:
    """Both parts; there is nothing to shorten."""
    plans = {
        "paper": plan_routes(paper_node(), PAIR_BYTES, paper_middlemen()),
        "balanced": plan_routes(paper_node(), PAIR_BYTES),
    }
    at_once = plan_routes(paper_node(staged=False), PAIR_BYTES).direct_s
    staged = plans["paper"].direct_s
    assert staged is not None
    assert at_once is not None
    tell(f"middlemen of {len(plans['balanced'].buffers)} pairs chosen")
    seconds = {"staged": staged, "at_once": at_once} | {name: plan.two_phase_s for name, plan in plans.items()}
    saved = {
        name: {"staged": 1 - plan.two_phase_s / staged, "at_once": 1 - plan.two_phase_s / at_once}
        for name, plan in plans.items()
    }
    return {
        "settings": {"pair_bytes": PAIR_BYTES, "nvlink_gbps": NVLINK_GBPS, **asdict(HostPaths(SOCKETS, SOCKETS))},
        "paper": {"pull": PAPER_PULL, "push": PAPER_PUSH, "rdma": PAPER_RDMA, "training": PAPER_TRAINING},
        "seconds": seconds,
        "saved": saved,
        "plans": {name: _shown(plan) for name, plan in plans.items()},
        "uplink_gbps": (GPUS - SOCKET - 1) * SOCKET * PAIR_BYTES / seconds["paper"] * (1 - PAPER_PULL) / 1e9,
        "update_share": saved["paper"]["staged"] / PAPER_PUSH - 1,
        "network": _network(),
        "promises": _promises(seconds, saved, plans["balanced"]),
    }


def _shown(plan: RoutePlan) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        "phases": [{"seconds": phase.seconds, "copies": len(phase.copies)} for phase in plan.phases],
        "links": [[round(rate / NVLINK_GBPS) for rate in row] for row in plan.fabric.links],
        "middlemen": [[each.source, each.target, each.gpu] for each in plan.buffers],
        "buffer_bytes": plan.buffer_bytes,
        "proven": plan.proven,
    }


def _network() -> list[dict[str, Any]]:
    """Fig. 7 and 8, for 1 GB of a node's pushes."""
    network, found = NodeNetwork(), []
    for nodes in NODES:
        paper = PAPER_RDMA[nodes]
        stack = network.stack_gbps_for(paper)
        found.append(
            {
                "nodes": nodes,
                "rdma_s": network.rdma_s(nodes, 10**9),
                "host_s": network.host_s(nodes, 10**9),
                "saved": network.saved(nodes, 10**9),
                "paper_saved": paper,
                "paper_stack_gbps": stack,
                "paper_host_s": NodeNetwork(socket_stack_gbps=stack).host_s(nodes, 10**9),
                "paper_push_share": PAPER_TRAINING / paper,
            }
        )
    return found


def _promises(
    seconds: Mapping[str, float], saved: Mapping[str, Mapping[str, float]], balanced: RoutePlan
) -> list[dict[str, Any]]:
    low, high = saved["paper"]["at_once"], saved["paper"]["staged"]
    faster = 1 - seconds["balanced"] / seconds["paper"]
    forwarded = sum(route.kind == "forwarded" for route in balanced.routes)
    host = sum(route.kind == "host" for route in balanced.routes)
    bounds = f"{_percent(low)} with copies at once, {_percent(high)} one after the other"
    proof = "no other choice is faster" if balanced.proven else "not proven to be the fastest"
    return [
        promise("the paper's 90 % of pulls is between the two ways over the host", low <= PAPER_PULL <= high, bounds),
        promise("no pair goes over the host", host == 0 and forwarded == 24, f"{forwarded} forwarded, {host} not"),
        promise("balanced middlemen are faster than those of Fig. 3", faster > 0, f"by {_percent(faster)}; {proof}"),
    ]


def lines(result: Mapping[str, Any]) -> list[str]:
    """For people."""
    seconds, saved = result["seconds"], result["saved"]
    rows = []
    for name, title in TITLES.items():
        shares = [_percent(saved[name][way]) for way in ("staged", "at_once")] if name in saved else ["", ""]
        parts = [f"{1e3 * phase['seconds']:.1f}" for phase in result["plans"][name]["phases"]] if name in saved else []
        rows.append([title, f"{1e3 * seconds[name]:.1f}", " + ".join(parts), *shares])
    head = [
        f"8 GPUs, {result['settings']['pair_bytes'] / 2**20:.0f} MiB each to each", "ms", "phases",
        "saved of one after the other", "saved of all at once",
    ]  # fmt: skip
    network = [
        [str(each["nodes"]), f"{1e3 * each['host_s']:.1f}", f"{1e3 * each['rdma_s']:.1f}", _percent(each["saved"]),
         _percent(each["paper_saved"]), f"{each['paper_stack_gbps']:.1f}", _percent(each["paper_push_share"])]
        for each in result["network"]
    ]  # fmt: skip
    network_head = [
        "nodes, 1 GB of pushes", "host ms", "RDMA ms", "saved", "paper", "its sockets GB/s", "its pushes in training",
    ]  # fmt: skip
    return [
        *table(head, rows),
        "",
        f"the paper: pulls {_percent(PAPER_PULL)} and pushes {_percent(PAPER_PUSH)} less time (Fig. 6)",
        f"- its pulls: {result['uplink_gbps']:.1f} GB/s an uplink over the host, of {HostPaths((), ()).pcie_gbps}",
        f"- its pushes: copies are those of pulls; an update of {_percent(result['update_share'])} of the time over "
        "the host, which routes do not shorten, makes up the difference",
        "",
        *table(network_head, network),
        "",
        "modelled, not measured: bytes by rates; GPUDirect RDMA is not performed here",
        *promise_lines(result),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
