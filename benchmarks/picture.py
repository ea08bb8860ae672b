"""Draws docs/speed.svg, the picture of the README, from benchmarks/results/store.json.

python benchmarks/picture.py
"""

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
SOURCE, TARGET = HERE / "results" / "store.json", HERE.parent / "docs" / "speed.svg"

WIDTH, LEFT, BAR, GAP, TOP = 760, 230, 26, 8, 92
SCALE = 33.0  # pixels of a million ids per second
TITLE = "One training step of an embedding table with 10 million rows"
SUBTITLE = "Lookup, sum of duplicate gradients, Adagrad. Million ids per second, higher is better."
ROWS = (("Hotrow", "step", None), ("FBGEMM, CPU", "fbgemm", "step_vs_fbgemm"), ("PyTorch", "torch", "step_vs_torch"))

STYLE = """
  text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #57606a }
  .paper { fill: #ffffff } .title { font-size: 18px; font-weight: 600; fill: #1f2328 }
  .value { fill: #1f2328; font-weight: 600 } .ours { fill: #0969da } .peer { fill: #afb8c1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .paper { fill: #0d1117 } .title { fill: #f0f6fc } .value { fill: #f0f6fc }
    .ours { fill: #4493f8 } .peer { fill: #3d444d }
  }
"""


def picture(figures: dict[str, float], cpu: str) -> str:
    """One group of bars for each row width."""
    body: list[str] = []
    y = TOP
    for dim in (16, 64):
        body.append(f'<text class="value" x="24" y="{y + 18}">dim {dim}</text>')
        body += bars(figures, dim, y)
        y += len(ROWS) * (BAR + GAP) + 22
    height = y + 24
    head = [
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<text class="title" x="24" y="36">{TITLE}</text>',
        f'<text x="24" y="60">{SUBTITLE}</text>',
    ]
    foot = f"{cpu}, 2 threads. hotrow bench store; benchmarks/results/store.json"
    body.append(f'<text x="24" y="{height - 18}">{escape(foot)}</text>')
    drawing = "\n".join([*head, *body])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{TITLE}: Hotrow beside FBGEMM and PyTorch">\n'
        f"<style>{STYLE}</style>\n{drawing}\n</svg>\n"
    )


def bars(figures: dict[str, float], dim: int, y: float) -> Iterator[str]:
    """Rates are medians over rounds; ratios are medians of the ratios within each round."""
    for name, key, ratio in ROWS:
        rate = figures[f"d{dim}_{key}_mids"]
        text = f"{rate:.1f}"
        if ratio is not None:
            text += f"  (Hotrow: {figures[f'd{dim}_{ratio}']:.1f} times)"
        look = "ours" if ratio is None else "peer"
        yield f'<text x="{LEFT - 12}" y="{y + 18}" text-anchor="end">{name}</text>'
        yield f'<rect class="{look}" x="{LEFT}" y="{y}" width="{rate * SCALE:.1f}" height="{BAR}" rx="3"/>'
        yield f'<text class="value" x="{LEFT + rate * SCALE + 10:.1f}" y="{y + 18}">{text}</text>'
        y += BAR + GAP


if __name__ == "__main__":
    recorded = json.loads(SOURCE.read_text())
    TARGET.write_text(picture(recorded, recorded["machine"]["cpu"].replace("(R)", "")))
