"""What 16-bit rows cost in AUC: the click model of examples/click_model.py, trained with each type of row.

Runs are paired: for one seed all types have the same samples in the same order, the same dense weights at first, rows
that start alike but for rounding, and the same held-out samples. The interval is that of the differences within seeds.

    python benchmarks/row_types.py --json benchmarks/results/row_types.json
"""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from script_options import options_with_json, whole_number
from torch import Tensor, nn

import hotrow as hr
from hotrow.bench.machine import provenance
from hotrow.metrics import auc

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
click_model = importlib.import_module("click_model")

DIM, BATCH = 16, 4096
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}  # the first is what the others are compared with
STUDENT_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}  # 97.5 %


@dataclass(frozen=True)
class Run:
    """One training."""

    seed: int
    type: str
    auc: float
    best: float  # AUC of the teacher that drew the labels, on the same samples
    rows: int
    saturated: int  # elements that float16 could not hold


class Rows(nn.Module):
    """A table of the given type, called as the click model calls its rows."""

    def __init__(self, table: hr.Table) -> None:
        super().__init__()
        self.bags = hr.nn.EmbeddingBag(tables={"default": table}, threads=1)

    def forward(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.bags({"default": ids})["default"]
        return rows

    def step(self, samples: int) -> None:
        self.bags.step(samples=samples)


def area(labels: NDArray[np.float32], scores: NDArray[np.float64]) -> float:
    """The AUC of samples that hold both classes."""
    found = auc(labels, scores)
    assert found is not None
    return found


def runs_of_seed(seed: int, options: argparse.Namespace) -> list[Run]:
    """Every type on the same samples."""
    teacher = click_model.Teacher(seed)
    held_out = teacher.clicks(options.test_samples, np.random.default_rng([seed, 2]))
    labels = held_out.labels.numpy()
    best = area(labels, held_out.best)
    runs = []
    for kind in VALUE_BYTES:
        torch.manual_seed(seed)  # the dense weights start alike
        model = click_model.DeepFM(DIM, hidden=64, threads=1)
        model.rows = Rows(hr.Table(dim=DIM, type=kind, optimizer=hr.Adagrad(lr=0.02), seed=seed))
        seconds = click_model.train(model, teacher, options.samples, BATCH, seed)
        model.eval()
        reached = area(labels, click_model.scores(model, held_out, BATCH))
        stats = model.rows.bags.table("default").stats()
        runs.append(Run(seed, kind, reached, best, stats.rows, stats.saturated))
        print(f"seed {seed}  {kind:8}  AUC {reached:.6f}  trained in {seconds:.1f} s", file=sys.stderr, flush=True)
    return runs


def mean_and_half_width(differences: Sequence[float]) -> tuple[float, float]:
    """The mean and its 95 % interval (Student's t), as mean plus or minus the second number."""
    count = len(differences)
    return float(np.mean(differences)), float(STUDENT_T[count - 1] * np.std(differences, ddof=1) / count**0.5)


def summary(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A line for each type."""
    aucs = {kind: [run.auc for run in runs if run.type == kind] for kind in VALUE_BYTES}
    lines = []
    for kind, size in VALUE_BYTES.items():
        differences = [ours - exact for ours, exact in zip(aucs[kind], aucs["float32"], strict=True)]
        mean, half_width = mean_and_half_width(differences)
        lines.append(
            {
                "type": kind,
                "mean_auc": float(np.mean(aucs[kind])),
                "mean_difference": mean,
                "half_width_95": half_width,
                "value_bytes": size * DIM,
                "value_and_state_bytes": (size + 4) * DIM,  # Adagrad keeps a float32 for each value
            }
        )
    return lines


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    head = "| rows | mean AUC | difference to float32 (95 %) | bytes of a row's values | with Adagrad's state |"
    text = [head, "|---|---|---|---|---|"]
    for line in lines:
        difference = f"{line['mean_difference']:+.6f} ± {line['half_width_95']:.6f}"
        cells = [line["type"], f"{line['mean_auc']:.6f}", "" if line["type"] == "float32" else difference]
        text.append(f"| {' | '.join([*cells, str(line['value_bytes']), str(line['value_and_state_bytes'])])} |")
    return "\n".join(text)


def document(options: argparse.Namespace, lines: list[dict[str, Any]], runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "types": lines,
        "runs": [asdict(run) for run in runs],
        "job": {
            "samples": options.samples,
            "test_samples": options.test_samples,
            "seeds": options.seeds,
            "batch": BATCH,
            "dim": DIM,
            "threads": 1,
        },
        **provenance("python benchmarks/row_types.py"),
    }


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="AUC of the click model by type of row, over paired seeds.")
    parser.add_argument("--samples", type=whole_number(1), default=2_000_000, help="samples to train on, in one pass")
    parser.add_argument("--test-samples", type=whole_number(100), default=1_000_000, help="samples held out for AUC")
    parser.add_argument("--seeds", type=int, default=5, choices=range(2, 11), help="paired runs, 2 to 10")
    return options_with_json(parser)


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    runs = [run for seed in range(options.seeds) for run in runs_of_seed(seed, options)]
    lines = summary(runs)
    print(markdown(lines))
    if options.json:
        options.json.write_text(json.dumps(document(options, lines, runs), indent=2) + "\n")


if __name__ == "__main__":
    main()
