"""A run of one process on a GPU beside the same on the CPU: the losses of both, and how fast each is.

    python benchmarks/gpu_training.py --json benchmarks/results/gpu_training.json

DeepFM on made-up data of Criteo's shape through hotrow.Trainer, float32. The table's rows are in GPU memory, or with
--hbm so many of them, and the others in host memory. Losses of all steps are compared first; then each device trains
larger batches from memory, without reading data. It exits with 1 where losses differ. Without a GPU it says so, and
with --interpret, which needs TRITON_INTERPRET=1, kernels run in Triton's interpreter on the CPU.
"""

import argparse
import json
import os
import time
from contextlib import closing, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from gpu_provenance import gpu_provenance
from script_options import options_with_json, whole_number
from zipf_batches import NAMES, NUMBERS, zipf_batches

import hotrow as hr
from hotrow.data.batch import Batch
from hotrow.errors import ConfigError, HotrowError
from hotrow.models.deepfm import DeepFM
from hotrow.runtime.device import Device
from hotrow.trainer import Progress, TrainingEnded

TOLERANCE = 1e-4
CPU_STEPS = 12  # of those whose time is taken


def table(dim: int, hbm: int | str) -> hr.Table:
    return hr.Table(dim=dim, optimizer=hr.Adagrad(lr=0.02), hbm=hbm)


def trainer(device: str, samples: int, dim: int, hidden: list[int], hbm: int | str, **settings: Any) -> hr.Trainer:
    torch.manual_seed(0)
    shape = hr.InputShape(numbers=NUMBERS, fields=dict.fromkeys(NAMES, dim))
    model = DeepFM(shape, hidden=tuple(hidden))
    return hr.Trainer(
        model, table(dim, hbm if device != "cpu" else 0), global_batch=samples, engine=hr.Local(device=device),
        report_every_s=0, mode=hr.Sync(look_ahead=0), **settings,
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


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=whole_number(1), default=200)
    parser.add_argument("--samples", type=whole_number(1), default=1024, help="of a step whose loss is compared")
    parser.add_argument("--large", type=whole_number(1), default=65_536, help="of a step whose time is taken")
    parser.add_argument("--large-steps", type=whole_number(2), default=60)
    parser.add_argument("--ids", type=whole_number(1), default=200_000, help="of each feature")
    parser.add_argument("--dim", type=whole_number(1), default=16)
    parser.add_argument("--hidden", type=whole_number(1), nargs="+", default=[400, 400, 400])
    parser.add_argument("--hbm", default="auto", help="rows in GPU memory, or their size")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 in the network where times are taken")
    parser.add_argument("--commit", help="of the sources, where there is no git")
    parser.add_argument("--interpret", action="store_true")
    given = options_with_json(parser)
    given.hbm = int(given.hbm) if given.hbm.isdecimal() else given.hbm
    try:
        table(given.dim, given.hbm)
    except ConfigError as error:
        parser.error(str(error))
    interpreted = os.environ.get("TRITON_INTERPRET", "0").lower() not in ("", "0", "false", "off", "no")
    if given.interpret and not interpreted:
        parser.error("--interpret: set TRITON_INTERPRET=1, which Triton reads when it is imported")
    if not given.interpret and not torch.cuda.is_available():
        parser.error("no GPU here: a GPU is compared with the CPU (--interpret runs without)")
    if not given.interpret and interpreted:
        parser.error("TRITON_INTERPRET is set: the interpreter would run the kernels on the CPU, unset it")
    return given


def compare(given: argparse.Namespace, found: dict[str, Any]) -> None:
    """The losses of the same steps on both."""
    data = list(zipf_batches(given.steps, given.samples, given.ids))
    shape = given.dim, given.hidden, given.hbm
    both = {device: losses(trainer(device, given.samples, *shape), data) for device in ("cpu", "cuda")}
    assert len(both["cpu"]) == len(both["cuda"]) == given.steps, "a step has no loss"
    apart = float(np.abs(np.subtract(both["cuda"], both["cpu"])).max())
    found |= {
        "steps": given.steps,
        "first_loss": both["cpu"][0],
        "last_loss": both["cpu"][-1],
        "largest_difference": apart,
        "same": apart <= TOLERANCE,
    }


def time_both(given: argparse.Namespace, found: dict[str, Any]) -> None:
    """Samples a second of each, and what its tables counted."""
    data = list(zipf_batches(min(given.large_steps, 20), given.large, given.ids, seed=1))
    autocast: Any = "on" if given.autocast else "off"
    for device in ("cuda", "cpu"):
        steps = (data * given.large_steps)[: given.large_steps if device == "cuda" else CPU_STEPS]
        made = trainer(device, given.large, given.dim, given.hidden, given.hbm, autocast=autocast)
        speed, counts = rate(made, steps, warm=len(steps) // 3)
        found[f"{device}_samples_per_s"] = round(speed)
        found |= {f"{device}_{name}": count for name, count in counts.items()}
        print(device, round(speed), counts, flush=True)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {
        **gpu_provenance("gpu_training.py", given.commit),
        "threads": torch.get_num_threads(),
        "settings": {name: value for name, value in vars(given).items() if name not in ("json", "commit")},
    }
    for part in (compare, time_both):
        part(given, found)
        if given.json is not None:  # after each part
            given.json.write_text(json.dumps(found, indent=2) + "\n")
    return found


def main() -> None:
    given = options()
    devices = {"cpu": Device(), "cuda": Device("cpu", torch.device("cpu"), 10**9)}
    interpreted = patch("hotrow.runtime.open_backend.device_of", devices.__getitem__)
    try:
        with interpreted if given.interpret else nullcontext():
            found = measure(given)
    except HotrowError as error:
        raise SystemExit(f"gpu_training: {error}") from None
    print(json.dumps(found, indent=2))
    if not found["same"]:
        apart = found["largest_difference"]
        raise SystemExit(f"gpu_training: losses differ by {apart:.2g} from those on the CPU, more than {TOLERANCE}")


if __name__ == "__main__":
    main()
