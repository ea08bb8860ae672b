"""Where a result of gpu_trainer.py or gpu_training.py comes from."""

from typing import Any

import torch
import without_pyarrow  # noqa: F401 - before Hotrow

from hotrow.bench.machine import provenance


def gpu_provenance(script: str, commit: str | None) -> dict[str, Any]:
    """Command, commit, date, machine and versions; `commit` names that of the sources where there is no git."""
    found = provenance(f"python benchmarks/{script}", {"triton": "triton"})
    found["commit"] = commit or found["commit"]
    found["machine"]["gpu"] = gpu_name()
    found["machine"]["cuda"] = torch.version.cuda
    return found


def gpu_name() -> str | None:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None
