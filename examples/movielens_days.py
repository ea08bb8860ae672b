"""MovieLens 100k day after day, as a table and a picture: one pass, with replay, and means of users and items.

    python examples/movielens_days.py ml-100k.inter.gz --picture days.svg

Each of the last days is predicted by what was trained before it, then trained on. The rival needs no network: the mean
label of the user and of the item so far, each drawn towards the mean of all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from hotrow.data.batch import Batch
from hotrow.data.config import Data, open_data
from hotrow.data.loader import Loader
from hotrow.metrics import Scores
from hotrow.run import Run, load_config
from hotrow.trainer import Evaluated

CONFIG = Path(__file__).with_name("movielens.toml")
DAMPING = 5.0  # ratings of the mean of all that stand beside a user's or an item's own
COLOURS = {"means": "#9aa0a6", "one pass": "#2563eb", "replay": "#d97706"}


@dataclass
class Means:
    """Sums of labels by id, of users and items alike."""

    total: float = 0.0
    count: int = 0
    of_id: dict[int, tuple[float, int]] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        assert batch.labels is not None
        self.total += float(batch.labels.sum())
        self.count += len(batch)
        for keys, label in zip(batch.parts[0].keys.reshape(len(batch), -1).tolist(), batch.labels[:, 0], strict=True):
            for key in keys:
                total, count = self.of_id.get(key, (0.0, 0))
                self.of_id[key] = (total + float(label), count + 1)

    def scores(self, batch: Batch) -> NDArray[np.float32]:
        mean = self.total / max(self.count, 1)
        found = [
            sum(self._mean(key, mean) for key in keys) for keys in batch.parts[0].keys.reshape(len(batch), -1).tolist()
        ]
        return np.array(found, np.float32)

    def _mean(self, key: int, of_all: float) -> float:
        total, count = self.of_id.get(key, (0.0, 0))
        return (total + DAMPING * of_all) / (count + DAMPING)


def by_means(data: Data) -> Iterator[tuple[str, Scores]]:
    """Each day's scores by means alone."""
    means = Means()
    for day in data.days():
        for _, batch in Loader(day.train, 4096):
            means.add(batch)
        scores = Scores()
        for _, batch in Loader(day.test, 4096):
            assert batch.labels is not None
            scores.add(batch.labels[:, 0], means.scores(batch))
        yield day.name, scores


def by_model(train: Path, replay: float, last: int, seed: int) -> Iterator[tuple[str, Scores]]:
    """Each day's scores by the model."""
    with TemporaryDirectory() as folder:
        changes = [f"data.train={str(train.absolute())!r}", f"data.split={{by='days', last={last}}}"]
        changes += [f"run.folder={folder!r}", f"run.replay={replay}", f"run.seed={seed}", "run.tensorboard=false"]
        with Run(load_config(CONFIG, changes)) as run:
            for report in run:
                if isinstance(report, Evaluated) and report.day is not None and isinstance(report.scores, Scores):
                    yield report.day, report.scores


def picture(curves: dict[str, list[tuple[str, float | None]]]) -> str:
    """AUC of all predictions up to each day, as SVG."""
    width, height, left, top = 760, 320, 56, 24
    settled = len(next(iter(curves.values()))) // 10  # the first few days swing too far for the rest to be seen
    values = [value for curve in curves.values() for _, value in curve[settled:] if value is not None]
    low, high = np.floor(min(values) * 50) / 50, np.ceil(max(values) * 50) / 50
    days = [day for day, _ in next(iter(curves.values()))]

    def place(number: int, value: float) -> str:
        x = left + (width - left - 110) * number / max(1, len(days) - 1)
        return f"{x:.1f},{top + (height - top - 48) * (high - value) / (high - low):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="14" fill="#202124">MovieLens 100k: AUC of all predictions so far, day after day</text>',
    ]
    for value in np.arange(low, high + 1e-9, 0.02):
        x, y = place(0, float(value)).split(",")
        parts.append(f'<line x1="{x}" x2="{width - 110}" y1="{y}" y2="{y}" stroke="#e0e0e0"/>')
        parts.append(f'<text x="{left - 8}" y="{float(y) + 4:.1f}" text-anchor="end" fill="#5f6368">{value:.2f}</text>')
    for number in range(0, len(days), max(1, len(days) // 5)):
        x, _ = place(number, float(low)).split(",")
        parts.append(f'<text x="{x}" y="{height - 16}" text-anchor="middle" fill="#5f6368">{days[number]}</text>')
    for line, (name, curve) in enumerate(curves.items()):
        points = " ".join(place(n, v) for n, (_, v) in enumerate(curve) if v is not None and low <= v <= high)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 100}" y="{top + 16 + 18 * line}" fill="{COLOURS[name]}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(
    train: Annotated[Path, typer.Argument(help="ml-100k.inter, plain or gz.")],
    last: Annotated[int, typer.Option(min=1, help="Days to test on.")] = 60,
    replay: Annotated[float, typer.Option(min=0, help="Samples of the past for each new one.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    to: Annotated[Path | None, typer.Option("--picture", help="Write the curves to this SVG file.")] = None,
) -> None:
    """Print AUC day by day and over all days; draw it."""
    days = f"data.split={{by='days', last={last}}}"
    data = open_data(load_config(CONFIG, [f"data.train={str(train.absolute())!r}", days]).data)
    found = {
        "means": list(by_means(data)),
        "one pass": list(by_model(train, 0.0, last, seed)),
        "replay": list(by_model(train, replay, last, seed)),
    }
    table = Table("day", "ratings", *found, box=None, pad_edge=False)
    pooled = {name: Scores() for name in found}
    curves: dict[str, list[tuple[str, float | None]]] = {name: [] for name in found}
    for number, (day, scores) in enumerate(found["means"]):
        cells = []
        for name, of_days in found.items():
            pooled[name].extend(of_days[number][1])
            curves[name].append((day, pooled[name].metrics()["auc"]))
            area = of_days[number][1].metrics()["auc"]
            cells.append("" if area is None else f"{area:.4f}")
        table.add_row(day, f"{len(scores):,}", *cells)
    table.add_row("all", f"{len(pooled['means']):,}", *(f"{pooled[name].metrics()['auc']:.4f}" for name in found))
    Console().print(table)
    if to is not None:
        to.write_text(picture(curves))


if __name__ == "__main__":
    typer.run(main)
