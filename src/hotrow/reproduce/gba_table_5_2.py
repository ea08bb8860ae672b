"""GBA Table 5.2: how fast the modes are on a strained cluster, and on an idle one (Fig. 1).

Each profile of a strained cluster is calibrated on Sync and Async alone; everything about the other modes is predicted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean, pstdev
from typing import Any

from hotrow.reproduce.gba_profiles import JITTER, SHARE, Profile, calibrate, plain, profiles, speeds_of
from hotrow.reproduce.gba_tasks import LABELS, TASKS, Measured, PaperTask, measure, stated
from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table

SEEDS = (1, 2, 3)
WITHIN, BSP_WITHIN = 0.03, 0.05  # of Async
CALIBRATED = 0.02  # how near the ratio of Async and Sync has to come to the paper's
TITLES = {"sync": "Sync", "async": "Async", "hop-bs": "Hop-BS", "bsp": "BSP", "hop-bw": "Hop-BW", "gba": "GBA"}
IDLE = {  # times the dense bytes, how much batches vary
    "as stated": (1.0, JITTER),
    "four times the dense bytes": (4.0, JITTER),
    "batches vary by 2 %": (1.0, 0.02),
}


def run(quick: bool = False, *, seeds: Sequence[int] = SEEDS, tell: Tell = silent) -> dict[str, Any]:
    """Every task under every profile, then idle. Quick: one task for seconds, on one seed."""
    tasks = {"alimama": replace(TASKS["alimama"], seconds=6.0)} if quick else TASKS
    seeds = seeds[:1] if quick else seeds
    strained: dict[str, dict[str, Any]] = {name: {} for name in tasks}
    idle: dict[str, Any] = {}
    for name, task in tasks.items():
        for title, profile in profiles(task).items():
            strained[name][title] = found = predicted(task, profile, seeds)
            tell(f"{name}, {title}: {profile.parameter} {found['parameter']:.3g}, {_shares(found['modes'])}")
        idle[name] = {title: idle_cluster(task, seeds[0], *choice) for title, choice in IDLE.items()}
        tell(f"{name}, idle: {_shares(idle[name]['as stated'])}")
    settings = {
        **stated(), "seeds": list(seeds), "straggling_share": SHARE, "jitter": JITTER,
        "seconds": {name: task.seconds for name, task in tasks.items()},
    }  # fmt: skip
    paper = {
        name: {label: {"qps": mean, "qps_spread": spread} for label, (mean, spread) in task.qps.items()}
        for name, task in tasks.items()
    }
    result = {"settings": settings, "paper": paper, "strained": strained, "idle": idle}
    return {**result, "promises": promises(result)}


def predicted(task: PaperTask, profile: Profile, seeds: Sequence[int]) -> dict[str, Any]:
    """Calibrate on Sync and Async, then measure all modes."""
    parameter = calibrate(task, profile, seeds)
    speeds = speeds_of(task, profile, parameter)
    found = {
        label: [measure(task, label, speeds, seed=seed, seconds=task.seconds) for seed in seeds] for label in LABELS
    }
    scale = task.qps["async"][0] / fmean(each.qps for each in found["async"])
    return {
        "parameter": parameter,
        "scale": scale,  # every QPS is times this, so that Async has the paper's
        "modes": {label: _summary(found[label], scale) for label in LABELS},
    }


def idle_cluster(task: PaperTask, seed: int, dense: float, jitter: float) -> dict[str, Any]:
    """Nobody is slow."""
    speeds = plain(task, task.qps["async"][0], jitter)
    seconds = task.seconds / 4
    return {
        label: {"qps": measure(task, label, speeds, seed=seed, seconds=seconds, dense=dense).qps}
        for label in ("sync", "async", "gba")
    }


def _summary(found: Sequence[Measured], scale: float) -> dict[str, Any]:
    parts = sum(each.parts_applied for each in found)
    return {
        "qps": scale * fmean(each.qps for each in found),
        "qps_spread": scale * pstdev(rate for each in found for rate in each.windows),
        "qps_by_seed": [scale * each.qps for each in found],
        "samples_applied": sum(each.samples_applied for each in found),
        "samples_dropped": sum(each.samples_dropped for each in found),
        "zero_weight_share": sum(each.parts_zero for each in found) / parts,
        "staleness": fmean(each.staleness for each in found),
        "staleness_max": max(each.staleness_max for each in found),
    }


def promises(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each over all tasks and profiles."""
    cases = {
        f"{name}, {title}": {label: mode["qps"] for label, mode in found["modes"].items()}
        | {"paper": result["paper"][name]["async"]["qps"] / result["paper"][name]["sync"]["qps"]}
        for name, by_profile in result["strained"].items()
        for title, found in by_profile.items()
    }
    idle = {
        name: {label: mode["qps"] for label, mode in found["as stated"].items()}
        for name, found in result["idle"].items()
    }

    def ratios(over: str, under: str, among: Mapping[str, Mapping[str, float]] = cases) -> dict[str, float]:
        return {case: qps[over] / qps[under] for case, qps in among.items()}

    calibrated = {case: ratio / cases[case]["paper"] for case, ratio in ratios("async", "sync").items()}
    between = {case: (qps["hop-bw"] - qps["sync"]) / (qps["async"] - qps["sync"]) for case, qps in cases.items()}
    return [
        _judged("calibrated: Async / Sync over the paper's is 1", calibrated, 1 - CALIBRATED, 1 + CALIBRATED),
        _judged("GBA / Async is 1 within 3 %", ratios("gba", "async"), 1 - WITHIN, 1 + WITHIN),
        _judged("GBA / Sync is 2 or more", ratios("gba", "sync"), 2.0, inf),
        _judged("BSP / Async is 1 within 5 %", ratios("bsp", "async"), 1 - BSP_WITHIN, 1 + BSP_WITHIN),
        _judged("Hop-BW lies between Sync (0) and Async (1)", between, 0.0, 1.0),
        _judged("idle: Sync / Async is above 1", ratios("sync", "async", idle), 1.0, inf),
    ]


def _judged(said: str, ratios: Mapping[str, float], low: float, high: float) -> dict[str, Any]:
    """Whether all lie from low to high, with the two that are furthest apart."""
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    found = f"from {ratios[least]:.3f} ({least}) to {ratios[most]:.3f} ({most})"
    return promise(said, low <= ratios[least] and ratios[most] <= high, found)


def _shares(modes: Mapping[str, Mapping[str, float]]) -> str:
    whole = modes["async"]["qps"]
    told = [f"{TITLES[label]} {modes[label]['qps'] / whole:.3f}" for label in LABELS if label in modes]
    return ", ".join(told) + " of Async"


def lines(result: dict[str, Any]) -> list[str]:
    """For people."""
    told: list[str] = []
    for name, by_profile in result["strained"].items():
        head = [name, "paper, K samples/s", "/ Async"]
        for title, found in by_profile.items():
            head += [f"{title}: {found['parameter']:.3g}", "/ Async", "dropped"]
        paper = result["paper"][name]
        told += [*table(head, [_row(label, paper, by_profile) for label in LABELS]), ""]
    told += table(["idle cluster", *IDLE], [_idle_row(name, found) for name, found in result["idle"].items()])
    return [*told, "Sync / Async, Sync / GBA", "", *promise_lines(result)]


def _row(label: str, paper: Mapping[str, Any], by_profile: Mapping[str, Any]) -> list[str]:
    cells = [TITLES[label], _qps(paper[label]), f"{paper[label]['qps'] / paper['async']['qps']:.2f}"]
    for found in by_profile.values():
        mode = found["modes"][label]
        lost = mode["samples_dropped"] / (mode["samples_dropped"] + mode["samples_applied"])
        cells += [
            _qps(mode),
            f"{mode['qps'] / found['modes']['async']['qps']:.2f}",
            f"{100 * lost:.1f} %" if lost else "",
        ]
    return cells


def _qps(mode: Mapping[str, float]) -> str:
    return f"{mode['qps'] / 1000:,.0f} ± {mode['qps_spread'] / 1000:,.0f}"


def _idle_row(name: str, found: Mapping[str, Any]) -> list[str]:
    return [name] + [
        f"{each['sync']['qps'] / each['async']['qps']:.3f}, {each['sync']['qps'] / each['gba']['qps']:.3f}"
        for each in found.values()
    ]
