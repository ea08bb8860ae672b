"""A whole measurement: each part is checked, then timed, and what it gave is written before the next one begins.

Nothing here imports a kernel before `--interpret` is known: Triton decides when a kernel is defined who runs it.
"""

import os
import platform
import shlex
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from hotrow.bench.commit import commit as commit_of_sources
from hotrow.bench.gpu.clock import EventClock
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.record import Record
from hotrow.errors import ConfigError


def run(
    json: Path | None = None,
    part: Sequence[str] | None = None,
    quick: bool = False,
    interpret: bool = False,
    commit: str | None = None,
) -> Record:
    """Check and measure the parts. A part that fails is recorded, and the others follow."""
    _check_runnable(json, quick, interpret)
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    from hotrow.bench.gpu.parts import chosen

    parts, device = chosen(part), torch.device("cpu" if interpret else "cuda")
    plan = GpuPlan().quick() if quick else GpuPlan()
    record = Record({**_provenance(commit), "plan": plan.as_dict()}, json)
    for name, module in parts.items():
        run_part(name, module, device, plan, None if interpret else EventClock(device, plan), record)
    return record


def run_part(
    name: str, module: Any, device: torch.device, plan: GpuPlan, clock: EventClock | None, record: Record
) -> None:  # fmt: skip
    """Check a part and, with a clock, measure it. Figures from before a failure stay."""
    try:
        print(f"checking {name}", file=sys.stderr)
        module.check(device, plan)
        record.note(name, "checked")
        if clock is not None:
            print(f"measuring {name}", file=sys.stderr)
            for figure, value in module.measure(clock, plan):
                record.add(name, figure, value)
            record.note(name, "measured")
    except Exception as error:  # of any kind: what the other parts find is worth more than a short run
        traceback.print_exc()
        record.fail(name, error)
    if device.type == "cuda":
        torch.cuda.empty_cache()  # tables of this part, for the next


def _check_runnable(json: Path | None, quick: bool, interpret: bool) -> None:
    """Raise before a long run what would fail at its end."""
    if json is not None and (json.is_dir() or not json.parent.is_dir()):
        raise ConfigError(f"--json {json}: must be a file in a folder that exists")
    if interpret and not quick:
        raise ConfigError("--interpret: the interpreter is too slow for full sizes, add --quick")
    if not interpret and not torch.cuda.is_available():
        raise ConfigError("no CUDA device: run this on a machine with a GPU, or check results by --quick --interpret")
    if not interpret and os.environ.get("TRITON_INTERPRET", "0").lower() not in ("", "0", "false", "off", "no"):
        raise ConfigError("TRITON_INTERPRET is set: the interpreter would run the kernels on the CPU, unset it")


def _provenance(commit: str | None) -> dict[str, Any]:
    return {
        "command": shlex.join(["python", "-m", "hotrow.bench.gpu", *sys.argv[1:]]),
        "commit": commit or commit_of_sources(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in ("torch", "triton")}},
    }


def _machine() -> dict[str, Any]:
    if not torch.cuda.is_available():
        return {"gpu": None}
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "driver": _driver(),
        "cuda": torch.version.cuda,
    }


def _driver() -> str | None:
    """From the file of the kernel module, as `NVRM version: ... 580.65.06 ...`."""
    file = Path("/proc/driver/nvidia/version")
    return file.read_text().splitlines()[0] if file.exists() else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
