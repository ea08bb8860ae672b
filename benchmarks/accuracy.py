"""What the examples reach on real samples and on the synthetic stream: every job with several seeds, mean and spread.

Each training is a `hotrow train` of an example with `--set`; everything that differs from the example stands in JOBS.
The samples lie in the folder that HOTROW_DATA names.

    python benchmarks/accuracy.py --json benchmarks/results/accuracy.json
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from hotrow.bench.machine import provenance

EXAMPLES = Path(__file__).parents[1] / "examples"
FRAPPE = ("data.train={}/frappe_x1/train_rebuilt.csv.gz", "data.valid={}/frappe_x1/valid.csv.gz",
          "data.test={}/frappe_x1/test.csv.gz")  # fmt: skip
CRITEO = ("data.train={}/criteo_dac80k/criteo_dac80k.tsv.gz",)
MOVIELENS = ("data.train={}/movielens_100k/ml-100k.inter.gz",)


@dataclass(frozen=True)
class Job:
    """One example with changes, and the test AUC that is wanted of its mean."""

    example: str
    changes: tuple[str, ...]
    wanted: float | None  # None: of the synthetic stream, within 0.01 of the best


def _table(dim: int, optimizer: str, init: str = "") -> tuple[str, ...]:
    chosen = (f"tables.default.dim={dim}", f"tables.default.optimizer={{{{{optimizer}}}}}")
    return chosen + ((f"tables.default.init={{{{{init}}}}}",) if init else ())


JOBS = {
    "frappe deepfm": Job("frappe", FRAPPE, 0.9838),
    "frappe dnn": Job("frappe", (*FRAPPE, "model.name=dnn", "tables.default.dim=10"), 0.9838),
    "frappe dcnv2": Job(
        "frappe",
        (*FRAPPE, "model.name=dcnv2", "model.cross_layers=4", "model.structure=parallel", "model.dropout=0.4",
         *_table(10, "name='adam', lr=0.001, beta2=0.97, l2=0.1")),
        0.9838,
    ),
    "frappe fm": Job(
        "frappe",
        (*FRAPPE, "model={{name='fm'}}", "run.epochs=100",
         *_table(11, "name='adagrad', lr=0.1, l2=1e-5", "name='normal', std=0.01")),
        0.9675,
    ),
    "frappe lr": Job(
        "frappe",
        (*FRAPPE, "model={{name='lr'}}", "run.epochs=100", *_table(1, "name='adam', lr=0.01, l2=1e-5")),
        0.935,
    ),
    "criteo lr": Job(
        "criteo",
        (*CRITEO, "model={{name='lr'}}", "run.epochs=30",
         *_table(1, "name='adam', lr=0.003", "name='constant', value=0.0")),
        0.763,
    ),
    "criteo deepfm": Job("criteo", CRITEO, 0.762),
    "movielens one pass": Job("movielens", MOVIELENS, 0.710),
    "movielens replay": Job("movielens", (*MOVIELENS, "run.replay=1"), 0.715),
    "synthetic deepfm": Job("demo", ("data.rows=5000000", "data.ids=10000000"), None),
}  # fmt: skip


def trained(job: Job, seed: int, data: str) -> dict[str, Any]:
    """One training in a process of its own."""
    seeded = [f"run.seed={seed}", *([f"data.seed={seed}"] if job.example == "demo" else [])]
    alone = ["run.torch_threads=1", "run.threads=1", "run.tensorboard=false"]
    with TemporaryDirectory() as folder:
        changes = [change.format(data) for change in job.changes] + seeded + alone + [f"run.folder={folder}/runs"]
        hotrow = Path(sys.executable).with_name("hotrow")
        command = [str(hotrow), "train", str(EXAMPLES / f"{job.example}.toml")]
        for change in changes:
            command += ["--set", change]
        done = subprocess.run([*command, "--json", f"{folder}/out.json"], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(command)}\n{done.stderr}")
        found: dict[str, Any] = json.loads(Path(folder, "out.json").read_text())
    return found


def summary(job: Job, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and spread of a job's seeds."""
    areas = [run["test_auc"] for run in runs]
    wanted = job.wanted if job.wanted is not None else mean(run["best_auc"] for run in runs) - 0.01
    return {
        "auc": round(mean(areas), 5),
        "auc_deviation": round(stdev(areas), 5) if len(areas) > 1 else None,
        "auc_by_seed": [round(area, 5) for area in areas],
        "logloss": round(mean(run["test_logloss"] for run in runs), 5),
        "wanted": round(wanted, 5),
        "reached": mean(areas) >= wanted,
        "samples": [run["samples"] for run in runs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(JOBS), choices=list(JOBS), metavar="JOB")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    data = os.environ.get("HOTROW_DATA")
    if data is None:
        raise SystemExit("HOTROW_DATA is not set: name the folder with the real samples")
    tasks = [(name, seed) for name in given.only for seed in range(given.seeds)]
    with ThreadPoolExecutor(given.at_once) as pool:
        runs = list(pool.map(lambda task: trained(JOBS[task[0]], task[1], str(Path(data).absolute())), tasks))
    results = {
        name: summary(JOBS[name], [run for (job, _), run in zip(tasks, runs, strict=True) if job == name])
        for name in given.only
    }
    for name, found in results.items():
        told = "reached" if found["reached"] else "MISSED"
        print(f"{name:20} AUC {found['auc']:.4f} ± {found['auc_deviation'] or 0:.4f}  {told} {found['wanted']:.4f}")
    if given.json is not None:
        document = {
            "results": results,
            "seeds": given.seeds,
            **provenance("python benchmarks/accuracy.py"),
        }
        given.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
