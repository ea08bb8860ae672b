"""HET Fig. 7 and 9: speed with and without caches, by workers and links, beside exact look-ahead and replicas.

Fig. 7 has eight workers and one server, Fig. 9 1 to 32 workers and four servers. Bytes, hits and misses are real, time
is virtual.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hotrow.reproduce.het_cluster import (
    COMPUTE_S,
    DENSE_BYTES,
    DIM,
    FEATURES,
    HEAD,
    HEAD_SHARE,
    IN_FLIGHT,
    LATENCY_S,
    SAMPLES,
    TITLES,
    HetSize,
    Variant,
    exponent,
    speed_of,
)
from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table

WORKERS = (1, 2, 4, 8, 16, 32)
LINKS = (1, 10)  # Gb/s
SEED = 1
FIGURE_7, FIGURE_9 = HetSize(), HetSize(warm_up=6, measured=8)
QUICK = HetSize(ids=2_000, warm_up=3, measured=4)
CACHES: tuple[Variant, ...] = ("s=0", "s=10", "s=100")
PAPER_7 = "s = 100 over Hybrid: up to 5.1 times as fast at 1 Gb/s, 2.3 at 10 Gb/s; 88 % of the bytes of rows saved"
PAPER_9 = "TF PS and TF Parallax gain little from more than a few workers, HET goes on (a picture without numbers)"


Found = dict[str, dict[str, list[dict[str, Any]]]]  # by link and variant, one entry for each number of workers


def figure_7(quick: bool = False, *, tell: Tell = silent) -> dict[str, Any]:
    """Eight workers, one server."""
    return _run((8,), 1, QUICK if quick else FIGURE_7, PAPER_7, tell)


def figure_9(quick: bool = False, *, tell: Tell = silent) -> dict[str, Any]:
    """1 to 32 workers, four servers."""
    return _run((1, 4) if quick else WORKERS, 4, QUICK if quick else FIGURE_9, PAPER_9, tell)


def _run(workers: Sequence[int], servers: int, size: HetSize, paper: str, tell: Tell) -> dict[str, Any]:
    found: Found = {}
    for link in LINKS:
        found[str(link)] = {}
        for variant in TITLES:
            speeds = []
            for count in workers:
                speed = speed_of(variant, count, link, servers, size, SEED)
                speeds.append({"workers": count, **asdict(speed)})
                tell(f"{link} Gb/s, {TITLES[variant]}, {count} workers: {speed.qps:,.0f} samples/s")
            found[str(link)][variant] = speeds
    return result_of(found, servers, size, paper)


def result_of(found: Found, servers: int, size: HetSize, paper: str) -> dict[str, Any]:
    """The result, from speeds by link, variant and workers."""
    settings = {
        "servers": servers, "batch": SAMPLES, "ids_of_a_sample": FEATURES, "dim": DIM, "dense_bytes": DENSE_BYTES,
        "compute_s": COMPUTE_S, "latency_s": LATENCY_S, "max_in_flight": IN_FLIGHT, "seed": SEED, **asdict(size),
        "cache_rows": size.ids // 10, "policy": "lfu", "zipf": exponent(size.ids), "head": HEAD,
        "head_share": HEAD_SHARE,
    }  # fmt: skip
    return {"settings": settings, "paper": paper, "links": found, "promises": _promises(found)}


def _promises(found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> list[dict[str, Any]]:
    at = {link: {name: speeds[-1] for name, speeds in of.items()} for link, of in found.items()}
    most = at["1"]["hybrid"]["workers"]
    slow = {name: each["qps"] / at["1"]["hybrid"]["qps"] for name, each in at["1"].items()}
    fast = {name: each["qps"] / at["10"]["hybrid"]["qps"] for name, each in at["10"].items()}
    saved = 1 - at["1"]["s=100"]["row_bytes"] / at["1"]["hybrid"]["row_bytes"]
    gain = f"{slow['s=100']:.2f} at 1 Gb/s, {fast['s=100']:.2f} at 10 Gb/s"
    order = f"s = 0: {slow['s=0']:.2f}, s = 10: {slow['s=10']:.2f}, s = 100: {slow['s=100']:.2f}"
    above = slow["s=100"] > 1.05
    return [
        promise(f"a cache with s = 100 is faster than none with {most} workers at 1 Gb/s", above, order),
        promise("a larger s is not slower", slow["s=0"] <= 1.02 * slow["s=10"] <= 1.05 * slow["s=100"], order),
        promise("it gains more on the slower link", slow["s=100"] >= fast["s=100"], gain),
        promise("it saves bytes of rows", saved > 0, f"{100 * saved:.0f} % of those without a cache"),
    ]


def lines(result: Mapping[str, Any]) -> list[str]:
    """For people."""
    shown: list[str] = []
    for link, of in result["links"].items():
        first = of["hybrid"][0]["qps"]
        counts = [each["workers"] for each in of["hybrid"]]
        head = [f"{link} Gb/s: times Hybrid with {counts[0]}", *map(str, counts), "MB of rows a batch", "hits"]
        rows = []
        for name, speeds in of.items():
            last = speeds[-1]
            hits = "" if last["hits"] is None else f"{100 * last['hits']:.0f} %"
            gains = [f"{each['qps'] / first:.2f}" for each in speeds]
            rows.append([TITLES[name], *gains, f"{last['row_bytes'] / 1e6:.2f}", hits])
        shown += [*table(head, rows), ""]
    return [*shown, f"the paper: {result['paper']}", *promise_lines(result)]
