"""A run of one process on a GPU beside the same on the CPU: the losses of both, and how fast each is.

    python benchmarks/gpu_training.py --json benchmarks/results/gpu_training.json

DeepFM on made-up data of Criteo's shape through hotrow.Trainer, float32. The table's rows are in GPU memory, or with
--hbm so many of them, and the others in host memory. Losses of all steps are compared first; then each device trains
larger batches from memory, without reading data. Without a GPU it says so, and with --interpret, which needs
TRITON_INTERPRET=1, kernels run in Triton's interpreter on the CPU.
"""

import argparse
import json
import platform
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import hotrow as hr
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.models.deepfm import DeepFM
from hotrow.runtime.device import Device
from hotrow.trainer import Progress, TrainingEnded

FEATURES, NUMBERS, ZIPF = 26, 13, 1.05
TOLERANCE = 1e-4


def batches(count: int, samples: int, ids: int, seed: int = 0) -> list[Batch]:
    """Labels that depend on ids and numbers, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    features = tuple(f"id_{place}" for place in range(FEATURES))
    shares = np.arange(1, ids + 1) ** -ZIPF
    bounds = np.cumsum(shares) / shares.sum()
    made = []
    for _ in range(count):
        keys = np.searchsorted(bounds, rng.random((samples, FEATURES))).astype(np.int64)
        keys = keys * FEATURES + np.arange(FEATURES)
        numbers = rng.normal(size=(samples, NUMBERS)).astype(np.float32)
        odds = np.sin(keys[:, :4] * 0.7).sum(1) + numbers[:, 0] - 1
        labels = (rng.random(samples) < 1 / (1 + np.exp(-odds))).astype(np.float32)[:, None]
        made.append(Batch((FeatureBlock("default", "one", features, keys.reshape(-1)),), numbers, labels))
    return made


def trainer(device: str, samples: int, dim: int, hidden: list[int], hbm: int | str, **settings: Any) -> hr.Trainer:
    torch.manual_seed(0)
    fields = {f"id_{place}": dim for place in range(FEATURES)}
    shape = hr.InputShape(numbers=NUMBERS, fields=fields)
    model = DeepFM(shape, hidden=tuple(hidden))
    table = hr.Table(dim=dim, optimizer=hr.Adagrad(lr=0.02), hbm=hbm if device != "cpu" else 0)
    return hr.Trainer(
        model, table, global_batch=samples, engine=hr.Local(device=device), report_every_s=0,
        mode=hr.Sync(look_ahead=0), **settings,
    )  # fmt: skip


def losses(made: hr.Trainer, data: list[Batch]) -> list[float]:
    with closing(made):
        return [report.loss for report in made.fit(data) if isinstance(report, Progress)]


def rate(made: hr.Trainer, data: list[Batch], warm: int) -> tuple[float, dict[str, int]]:
    """Samples a second after the first steps, and what the tables counted."""
    moments: list[tuple[float, int]] = []
    counts: dict[str, int] = {}
    with closing(made):
        for report in made.fit(data):
            match report:
                case Progress():
                    moments.append((time.perf_counter(), report.samples))
                case TrainingEnded():
                    counts = dict(report.counts)
        (began, before), (ended, after) = moments[warm], moments[-1]
        return (after - before) / (ended - began), counts


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--samples", type=int, default=1024, help="of a step whose loss is compared")
    parser.add_argument("--large", type=int, default=65_536, help="of a step whose time is taken")
    parser.add_argument("--large-steps", type=int, default=60)
    parser.add_argument("--ids", type=int, default=200_000, help="of each feature")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--hidden", type=int, nargs="+", default=[400, 400, 400])
    parser.add_argument("--hbm", default="auto", help="rows in GPU memory, or their size")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 in the network where times are taken")
    parser.add_argument("--commit", help="where there is no git")
    parser.add_argument("--interpret", action="store_true")
    given = parser.parse_args()
    if given.interpret:
        interpreted = Device("cpu", torch.device("cpu"), 10**9)
        made_of = {"cpu": Device(), "cuda": interpreted}
        patch("hotrow.runtime.open_backend.device_of", made_of.__getitem__).start()
    elif not torch.cuda.is_available():
        raise SystemExit("gpu_training: no GPU here: it compares one with the CPU (--interpret runs without)")
    hbm = int(given.hbm) if given.hbm.isdecimal() else given.hbm
    found: dict[str, Any] = {
        "commit": given.commit or commit(),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cpu": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "settings": {name: str(value) for name, value in vars(given).items() if name not in ("json", "commit")},
    }
    shape = given.dim, given.hidden, hbm
    data = batches(given.steps, given.samples, given.ids)
    both = {device: losses(trainer(device, given.samples, *shape), data) for device in ("cpu", "cuda")}
    apart = np.abs(np.subtract(both["cuda"], both["cpu"]))
    found |= {
        "steps": len(both["cpu"]),
        "first_loss": both["cpu"][0],
        "last_loss": both["cpu"][-1],
        "largest_difference": float(apart.max()),
        "same": bool(len(both["cpu"]) == len(both["cuda"]) == given.steps and apart.max() <= TOLERANCE),
    }
    print(json.dumps(found, indent=2), flush=True)
    data = batches(min(given.large_steps, 20), given.large, given.ids, seed=1)
    autocast: Any = "on" if given.autocast else "off"
    for device in ("cuda", "cpu"):
        steps = (data * given.large_steps)[: given.large_steps if device == "cuda" else 12]
        speed, counts = rate(trainer(device, given.large, *shape, autocast=autocast), steps, warm=len(steps) // 3)
        found |= {f"{device}_samples_per_s": round(speed), **counts}
        print(device, round(speed), counts, flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
