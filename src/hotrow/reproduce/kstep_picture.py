"""The picture of the two-phase routes: who forwards for whom, and the times of an exchange and of a push."""

from collections.abc import Mapping, Sequence
from typing import Any

from hotrow.reproduce.kstep_routes import GPUS, TITLES
from hotrow.sim.study.picture.drawing import AxisScale, style, text

WIDTH, HEIGHT = 1080, 470
CELL, LEFT, TOP = 40, 60, 110
BARS, END = 700, 990  # the left edge of all bars, and the right one of the longest
LOOKS = {2: ("m0-fill", 0.55), 1: ("m0-fill", 0.25), 0: ("m1-fill", 0.30)}  # by links


def picture(result: Mapping[str, Any]) -> str:
    """SVG."""
    parts = [text("Two-phase routes of eight GPUs, by arithmetic", 24, 30, look="title")]
    parts += _matrix(result["plans"]["balanced"]) + _exchange(result) + _pushes(result["network"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sim" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img"><style>{style()}</style>'
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>{"".join(parts)}</svg>\n'
    )


def _matrix(plan: Mapping[str, Any]) -> list[str]:
    """Links, and the middleman of each pair without one."""
    via = {(source, target): str(gpu) for source, target, gpu in plan["middlemen"]}
    parts = [text("Middlemen, from row to column", LEFT - 36, TOP - 42, look="head")]
    for source, row in enumerate(plan["links"]):
        parts.append(text(str(source), LEFT - 14, TOP + CELL * (source + 0.6), look="name", anchor="middle"))
        parts.append(text(str(source), LEFT + CELL * (source + 0.5), TOP - 10, look="name", anchor="middle"))
        for target, links in enumerate(row):
            if source != target:
                label = via.get((source, target), "")
                parts += _cell(LEFT + CELL * target, TOP + CELL * source, links, label)
    for place, (links, words) in enumerate(((2, "two NVLinks"), (1, "one"), (0, "none: through this GPU"))):
        x, y = LEFT + (0, 122, 190)[place], TOP + CELL * GPUS + 26
        parts.append(_box(LOOKS[links], x, y - 10, 14, 12))
        parts.append(text(words, x + 20, y))
    return parts


def _cell(x: float, y: float, links: int, label: str) -> list[str]:
    return [_box(LOOKS[links], x + 1, y + 1, CELL - 2, CELL - 2), text(label, x + CELL / 2, y + 25, anchor="middle")]


def _exchange(result: Mapping[str, Any]) -> list[str]:
    """A bar for each way, with its phases."""
    seconds, saved = result["seconds"], result["saved"]
    scale = AxisScale(0, max(seconds.values()), BARS, END)
    size = result["settings"]["pair_bytes"] // 2**20
    parts = [text(f"Exchange of {size} MiB from each to each, ms", 440, TOP - 42, look="head")]
    for place, (name, title) in enumerate(TITLES.items()):
        y = TOP - 16 + 34 * place
        times = [phase["seconds"] for phase in result["plans"][name]["phases"]] if name in saved else [seconds[name]]
        parts.append(text(title, BARS - 10, y + 4, anchor="end"))
        parts += _bar(scale, y, times, 0 if name in saved else 1)
        share = f", {100 * saved[name]['staged']:.0f} % less" if name in saved else ""
        parts.append(text(f"{1e3 * seconds[name]:.1f}{share}", scale(seconds[name]) + 8, y + 4, look="name"))
    note = "Dark: phase 1. The paper: 90 % less for pulls, 75 % for pushes."
    parts.append(text(note, BARS, TOP - 16 + 34 * 4, look="small"))
    return parts


def _pushes(network: Sequence[Mapping[str, Any]]) -> list[str]:
    """Over the host and with RDMA, for each number of nodes."""
    top = TOP + 168
    scale = AxisScale(0, max(each["paper_host_s"] for each in network), BARS, END)
    parts = [text("Push of 1 GB of a node to the others, ms", 440, top, look="head")]
    for place, each in enumerate(network):
        ways = (
            (
                f"{each['nodes']} nodes: over the host, sockets of {each['paper_stack_gbps']:.1f} GB/s",
                "paper_host_s",
                1,
            ),
            ("over the host, sockets as fast as the wire", "host_s", 1),
            ("GPUDirect RDMA", "rdma_s", 0),
        )
        for line, (title, name, colour) in enumerate(ways):
            y = top + 28 + 28 * line + 92 * place
            parts.append(text(title, BARS - 10, y + 4, anchor="end"))
            parts += _bar(scale, y, [each[name]], colour)
            parts.append(text(f"{1e3 * each[name]:.0f}", scale(each[name]) + 8, y + 4, look="name"))
    return parts


def _bar(scale: AxisScale, y: float, times: Sequence[float], colour: int) -> list[str]:
    parts, start = [], 0.0
    for place, each in enumerate(times):
        look = f"m{colour}-fill", (0.85, 0.5)[place % 2]
        parts.append(_box(look, scale(start), y - 9, scale(start + each) - scale(start), 18))
        start += each
    return parts


def _box(look: tuple[str, float], x: float, y: float, width: float, height: float) -> str:
    name, opacity = look
    return (
        f'<rect class="{name}" opacity="{opacity}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
    )
