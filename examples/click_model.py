"""A click model in a plain PyTorch loop, over ids that nobody counted beforehand.

A made-up stream of clicks in the shape of Criteo's: 26 id features with Zipf frequencies and 64-bit ids, 13 numbers. A
planted teacher draws the labels, so the best AUC that any model can reach is known and printed beside ours.

    python examples/click_model.py --samples 3000000
"""

import sys
import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

import hotrow as hr
from hotrow.metrics import auc

FEATURES, NUMBERS = 26, 13
CARDINALITIES = np.geomspace(10, 50_000, FEATURES).astype(np.int64)
ZIPF = 1.2
PAIRS = ((0, 1), (2, 3))  # features whose ids also act together


@dataclass(frozen=True)
class Clicks:
    """One batch."""

    ids: Tensor  # int64 [samples, 26]
    numbers: Tensor  # float32 [samples, 13]
    labels: Tensor  # float32 [samples]
    best: NDArray[np.float64]  # the teacher's log-odds, which no model may see


class Teacher:
    """Log-odds of a click: a weight for every id and number, and products of weights for a few pairs of features."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.id_weights = [rng.normal(0, 0.3, size) for size in CARDINALITIES]
        self.number_weights = rng.normal(0, 0.15, NUMBERS)
        self.pair_weights = [[rng.normal(0, 0.8, CARDINALITIES[feature]) for feature in pair] for pair in PAIRS]

    def log_odds(self, places: NDArray[np.int64], numbers: NDArray[np.float32]) -> NDArray[np.float64]:
        odds: NDArray[np.float64] = numbers @ self.number_weights - 2
        for feature, weights in enumerate(self.id_weights):
            odds += weights[places[:, feature]]
        for (left, right), (of_left, of_right) in zip(PAIRS, self.pair_weights, strict=True):
            odds += of_left[places[:, left]] * of_right[places[:, right]]
        return odds

    def clicks(self, samples: int, rng: np.random.Generator) -> Clicks:
        places = zipf_places(rng.random((samples, FEATURES)))
        numbers = rng.standard_normal((samples, NUMBERS), np.float32)
        odds = self.log_odds(places, numbers)
        labels = rng.random(samples) < 1 / (1 + np.exp(-odds))
        return Clicks(
            torch.from_numpy(scattered_ids(places)),
            torch.from_numpy(numbers),
            torch.from_numpy(labels.astype(np.float32)),
            odds,
        )


def zipf_places(uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Place k of a feature comes about as often as 1 / (k + 1) ** ZIPF: the inverse of that distribution's integral."""
    tail = 1 - (CARDINALITIES + 1.0) ** (1 - ZIPF)
    places = (1 - uniform * tail) ** (1 / (1 - ZIPF)) - 1
    return np.minimum(places.astype(np.int64), CARDINALITIES - 1)


def scattered_ids(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """An id for each (feature, place), anywhere in 64 bits, as hashed strings would be."""
    ids = (places + (np.arange(FEATURES) << 40)).astype(np.uint64)
    for _ in range(2):
        ids = (ids ^ (ids >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ids.view(np.int64)


class DeepFM(nn.Module):
    """Weights, pairwise products and a small network over the same rows (Guo et al. 2017)."""

    def __init__(self, dim: int, hidden: int, threads: int) -> None:
        super().__init__()
        self.rows = hr.nn.EmbeddingBag(dim, optimizer=hr.Adagrad(lr=0.02), threads=threads)
        self.deep = nn.Sequential(
            nn.Linear(FEATURES * dim + NUMBERS, hidden), nn.ReLU(), nn.Linear(hidden, hidden // 2), nn.ReLU()
        )
        self.top = nn.Linear(hidden // 2 + NUMBERS, 1)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        rows = self.rows(ids.reshape(-1, 1)).view(*ids.shape, -1)  # one id per bag: [samples, features, dim]
        weights, vectors = rows[:, :, 0], rows[:, :, 1:]
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
        deep = self.deep(torch.cat([rows.flatten(1), numbers], 1))
        odds: Tensor = weights.sum(1) + pairs + self.top(torch.cat([deep, numbers], 1)).squeeze(1)
        return odds


class Bar:
    """A bar on a terminal, a plain line every few seconds elsewhere; the result alone goes to standard output."""

    def __init__(self, total: int, quiet_s: float = 5.0) -> None:
        console = Console(stderr=True)
        columns = TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
        self.bar = Progress(BarColumn(), *columns, console=console, disable=not console.is_terminal)
        self.task = self.bar.add_task("", total=total)
        self.total, self.quiet_s, self.live = total, quiet_s, console.is_terminal
        self.start = self.next_line = time.monotonic()

    def show(self, done: int, loss: float) -> None:
        now = time.monotonic()
        rate = done / (now - self.start + 1e-9)
        text = f"{rate:9,.0f} samples/s  loss {loss:.4f}"
        self.bar.update(self.task, completed=done, description=text)
        if not self.live and now >= self.next_line:
            left = (self.total - done) / rate
            print(f"{done:12,} of {self.total:,} samples  {text}  {left:.0f} s left", file=sys.stderr, flush=True)
            self.next_line = now + self.quiet_s


def train(model: DeepFM, teacher: Teacher, samples: int, batch: int, seed: int) -> float:
    """One pass over the stream; returns the seconds it took."""
    rng = np.random.default_rng([seed, 1])
    dense = torch.optim.Adam(model.parameters(), lr=0.004)
    criterion = nn.BCEWithLogitsLoss()
    bar = Bar(samples)
    smooth = None  # loss over about the last hundred batches
    with bar.bar:
        for done in range(0, samples, batch):
            clicks = teacher.clicks(min(batch, samples - done), rng)
            loss = criterion(model(clicks.ids, clicks.numbers), clicks.labels)
            dense.zero_grad()
            loss.backward()
            dense.step()
            model.rows.step(samples=len(clicks.labels))
            smooth = loss.item() if smooth is None else 0.99 * smooth + 0.01 * loss.item()
            bar.show(done + len(clicks.labels), smooth)
    return time.monotonic() - bar.start


@torch.no_grad()
def scores(model: DeepFM, clicks: Clicks, batch: int) -> NDArray[np.float64]:
    """The model's log-odds; ids it never met take their first value and get no row."""
    parts = zip(torch.split(clicks.ids, batch), torch.split(clicks.numbers, batch), strict=True)
    return torch.cat([model(ids, numbers) for ids, numbers in parts]).double().numpy()


def main(
    samples: Annotated[int, typer.Option(min=1, help="Samples to train on, in one pass.")] = 3_000_000,
    test_samples: Annotated[int, typer.Option(min=100, help="Samples held out for the AUC.")] = 200_000,
    batch: Annotated[int, typer.Option(min=1, help="Samples per step.")] = 4096,
    dim: Annotated[int, typer.Option(min=2, help="Floats per row.")] = 16,
    hidden: Annotated[int, typer.Option(min=2, help="Units of the first hidden layer.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the table.")] = 2,
    torch_threads: Annotated[int, typer.Option(min=1, help="Threads of torch; a busy machine slows two down.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same run.")] = 0,
) -> None:
    """Train a click model whose table grows as ids come, and print its AUC beside the best possible."""
    torch.set_num_threads(torch_threads)
    torch.manual_seed(seed)
    teacher = Teacher(seed)
    model = DeepFM(dim, hidden, threads)
    seconds = train(model, teacher, samples, batch, seed)
    model.eval()
    held_out = teacher.clicks(test_samples, np.random.default_rng([seed, 2]))
    labels = held_out.labels.numpy()
    ours, best = auc(labels, scores(model, held_out, batch)), auc(labels, held_out.best)
    assert ours is not None, "a hundred samples hold both clicks and others"
    stats = model.rows.table().stats()
    memory_mb = (stats.slab_bytes + stats.index_bytes) / 2**20
    print(f"trained   {samples:,} samples in {seconds:.1f} s: {samples / seconds:,.0f} samples/s")
    print(f"table     {stats.rows:,} rows of {dim} floats, {memory_mb:.0f} MiB with optimizer state and index")
    print(f"AUC       {ours:.4f} on {test_samples:,} held-out samples; the teacher that drew the labels has {best:.4f}")


if __name__ == "__main__":
    typer.run(main)
