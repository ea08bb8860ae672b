"""The dense side of a checkpoint: parameters, buffers, the optimizer's tensors and torch's random state."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.errors import InputError


def write(path: Path, model: nn.Module, optimizer: Optimizer | None) -> dict[str, Any] | None:
    """Tensors go to the file, everything else of the optimizer comes back as JSON."""
    tensors = {f"model.{name}": _tensor(name, value) for name, value in model.state_dict().items()}
    tensors["random.torch"] = torch.get_rng_state()
    settings = None
    if optimizer is not None:
        state = optimizer.state_dict()
        for number, entries in state["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{number}.{name}"] = value
        settings = {
            "class": type(optimizer).__name__,
            "groups": state["param_groups"],
            "plain": {
                str(number): {name: value for name, value in entries.items() if not isinstance(value, Tensor)}
                for number, entries in state["state"].items()
            },
        }
        _demand_json(settings)
    save_file({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}, path)
    return settings


def read(path: Path, model: nn.Module, optimizer: Optimizer | None, settings: dict[str, Any] | None) -> None:
    """Put all of it back, or nothing."""
    tensors = load_file(path)
    parameters = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
    _check_model(parameters, model)
    _check_optimizer(optimizer, settings)
    model.load_state_dict(parameters)
    if optimizer is not None and settings is not None:
        state: dict[int, dict[str, Any]] = {int(number): dict(plain) for number, plain in settings["plain"].items()}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, number, entry = name.split(".", 2)
                state[int(number)][entry] = value
        ours = [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups]
        optimizer.load_state_dict({"state": state, "param_groups": settings["groups"]})
        for group, own in zip(optimizer.param_groups, ours, strict=True):
            group.update(own)  # settings are the run's, only the state is the checkpoint's
    torch.set_rng_state(tensors["random.torch"])


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        told = f"model state {name!r} is a {type(value).__name__}"
        raise InputError(f"{told}: a checkpoint keeps tensors; give embedding tables to the Trainer, not to the model")
    return value


def _demand_json(settings: dict[str, Any]) -> None:
    try:
        json.dumps(settings)
    except TypeError as error:
        raise InputError(f"the optimizer's state cannot be saved: {error}: use one of torch.optim") from None


def _check_model(saved: dict[str, Tensor], model: nn.Module) -> None:
    ours = model.state_dict()
    if missing := sorted(set(ours) - set(saved)):
        raise InputError(f"the checkpoint has no {missing[0]!r} of this model: build the model with the same settings")
    if unknown := sorted(set(saved) - set(ours)):
        raise InputError(f"the checkpoint has {unknown[0]!r}, this model has not: build it with the same settings")
    for name, value in saved.items():
        if value.shape != ours[name].shape:
            told = f"{name!r} is {tuple(value.shape)} in the checkpoint and {tuple(ours[name].shape)} in this model"
            raise InputError(f"{told}: build the model with the same settings")


def _check_optimizer(optimizer: Optimizer | None, settings: dict[str, Any] | None) -> None:
    theirs = None if settings is None else settings["class"]
    ours = None if optimizer is None else type(optimizer).__name__
    if theirs != ours:
        raise InputError(f"the checkpoint's dense optimizer is {theirs} and this run's {ours}: use the same")
    if optimizer is not None and settings is not None:
        sizes = [len(group["params"]) for group in settings["groups"]]
        if sizes != [len(group["params"]) for group in optimizer.param_groups]:
            raise InputError("the checkpoint's dense optimizer has other parameter groups: build it the same way")
