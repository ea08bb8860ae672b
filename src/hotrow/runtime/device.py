"""Where a run of one process computes: a GPU, or the CPU."""

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotrow.errors import ConfigError

CHOICES = "'auto' for a GPU where there is one, or 'cpu'"


@dataclass(frozen=True, slots=True)
class Device:
    """Of the network, and of rows near it."""

    network: str = "cpu"
    rows: torch.device | None = None  # None: rows are in host memory alone
    free_bytes: int | None = None  # of its memory, for rows; None: what is free when the tables open
    remark: str | None = None  # why a GPU that is there keeps no rows


CPU = Device()


def device_of(setting: str) -> Device:
    """The device of `engine.device`. ConfigError where it is not there."""
    if setting == "cpu" or (setting == "auto" and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        raise ConfigError(
            f"engine.device={setting!r}: torch {torch.__version__} finds no GPU here: install a torch for CUDA and "
            f"look at nvidia-smi, or take {CHOICES}"
        )
    device = torch.device("cuda", torch.cuda.current_device()) if setting in ("auto", "cuda") else torch.device(setting)
    if device.index >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise ConfigError(f"engine.device={setting!r}: the last GPU here is 'cuda:{last}': take that, or {CHOICES}")
    if find_spec("triton") is None:
        missing = "Triton, which moves rows there, is not installed: pip install 'hotrow[gpu]'"
        if setting == "auto":
            return Device(remark=f"device 'auto' takes the CPU though there is a GPU: {missing}")
        raise ConfigError(f"engine.device={setting!r}: {missing}, or take {CHOICES}")
    return Device(str(device), device)


def free_memory(device: torch.device) -> int:
    """Bytes that torch can still allocate on a GPU: what is free there, and what torch itself holds in reserve."""
    reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + reserve


def move_state(optimizer: Optimizer) -> None:
    """The state of an optimizer goes to where its parameters are: an earlier run may have been on another device."""
    if any(
        isinstance(value, Tensor) and value.device != parameter.device
        for parameter, state in optimizer.state.items()
        for value in state.values()
    ):
        optimizer.load_state_dict(optimizer.state_dict())
