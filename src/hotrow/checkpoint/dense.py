"""The dense side of a checkpoint: parameters, buffers, the optimizer's tensors and torch's random state.

The same without the random state travels between the roles of a cluster when a mode begins or ends.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.errors import InputError

RANDOM = "random.torch"


def bytes_of(model: nn.Module, optimizer: Optimizer | None) -> int:
    """What the tensors take in a file."""
    states = () if optimizer is None else optimizer.state.values()
    tensors = [*model.state_dict().values(), *(each for state in states for each in state.values())]
    return sum(each.numel() * each.element_size() for each in tensors if isinstance(each, Tensor))


def saved(model: nn.Module, optimizer: Optimizer | None) -> tuple[bytes, dict[str, Any] | None]:
    """Tensors in the format of safetensors, with torch's random state; everything else of the optimizer as JSON."""
    tensors, settings = _gathered(model, optimizer)
    return save({**tensors, RANDOM: torch.get_rng_state()}), settings


def checked(
    data: bytes, model: nn.Module, optimizer: Optimizer | None, settings: dict[str, Any] | None
) -> dict[str, Tensor]:
    """The saved tensors; InputError where they do not fit the model and its optimizer."""
    tensors = load(data)
    _check_model(_parameters(tensors), model)
    _check_optimizer(optimizer, settings)
    return tensors


def restore(
    tensors: dict[str, Tensor], model: nn.Module, optimizer: Optimizer | None, settings: dict[str, Any] | None
) -> None:
    """Put back tensors that were checked."""
    _restore({name: value for name, value in tensors.items() if name != RANDOM}, model, optimizer, settings)
    torch.set_rng_state(tensors[RANDOM])


def to_bytes(
    model: nn.Module, optimizer: Optimizer | None, instead: Mapping[str, Tensor] | None = None
) -> tuple[bytes, str | None]:
    """Tensors in the format of safetensors, everything else of the optimizer as JSON.

    `instead`: by name, tensors that take the place of the model's.
    """
    tensors, settings = _gathered(model, optimizer)
    tensors |= {f"model.{name}": value.cpu().contiguous() for name, value in (instead or {}).items()}
    return save(tensors), None if settings is None else json.dumps(settings)


def from_bytes(tensors: bytes, settings: str | None, model: nn.Module, optimizer: Optimizer | None) -> None:
    """Put all of it back, or nothing."""
    _restore(load(tensors), model, optimizer, None if settings is None else json.loads(settings))


def from_pieces(
    pieces: Sequence[tuple[Sequence[int], bytes, str | None]], model: nn.Module, optimizer: Optimizer | None
) -> None:
    """Put together what several servers hold: (places of its parameters in the model, tensors, settings) of each.

    Running figures are those of the first.
    """
    learned = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    numbers = {} if optimizer is None else _numbers(optimizer)
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] | None = None
    for places, data, text in pieces:
        theirs = load(data)
        mine = {f"model.{learned[place][0]}" for place in places}
        states = {str(numbers[id(learned[place][1])]) for place in places} if numbers else set()
        for name, value in theirs.items():
            if name in mine or name not in tensors or (name.startswith("optimizer.") and name.split(".")[1] in states):
                tensors[name] = value
        if text is not None:
            own = json.loads(text)
            settings = own if settings is None else settings
            settings["plain"].update({number: plain for number, plain in own["plain"].items() if number in states})
    _restore(_kept(tensors, settings), model, optimizer, settings)


def _numbers(optimizer: Optimizer) -> dict[int, int]:
    """By parameter, its number in the optimizer's state."""
    every = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {id(parameter): number for number, parameter in enumerate(every)}


def _kept(tensors: dict[str, Tensor], settings: dict[str, Any] | None) -> dict[str, Tensor]:
    """Without tensors of states that belong to no parameter."""
    known = set() if settings is None else set(settings["plain"])
    return {
        name: value
        for name, value in tensors.items()
        if not name.startswith("optimizer.") or name.split(".")[1] in known
    }


def _gathered(model: nn.Module, optimizer: Optimizer | None) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    tensors = {f"model.{name}": _tensor(name, value) for name, value in model.state_dict().items()}
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
        _check_json(settings)
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}, settings


def _restore(
    tensors: dict[str, Tensor], model: nn.Module, optimizer: Optimizer | None, settings: dict[str, Any] | None
) -> None:
    parameters = _parameters(tensors)
    _check_model(parameters, model)
    _check_optimizer(optimizer, settings)
    model.load_state_dict(parameters)
    if optimizer is None or settings is None:
        return
    state: dict[int, dict[str, Any]] = {int(number): dict(plain) for number, plain in settings["plain"].items()}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, number, entry = name.split(".", 2)
            state[int(number)][entry] = value
    ours = [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict({"state": state, "param_groups": settings["groups"]})
    for group, own in zip(optimizer.param_groups, ours, strict=True):
        group.update(own)  # settings are the run's, only the state is the checkpoint's


def _parameters(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        message = f"model state {name!r} is a {type(value).__name__}"
        raise InputError(
            f"{message}: a checkpoint keeps tensors; give embedding tables to the Trainer, not to the model"
        )
    return value


def _check_json(settings: dict[str, Any]) -> None:
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
    for name, value in sorted(saved.items()):  # safetensors gives them in any order
        if value.shape != ours[name].shape:
            message = f"{name!r} is {tuple(value.shape)} in the checkpoint and {tuple(ours[name].shape)} in this model"
            raise InputError(f"{message}: build the model with the same settings")


def _check_optimizer(optimizer: Optimizer | None, settings: dict[str, Any] | None) -> None:
    theirs = None if settings is None else settings["class"]
    ours = None if optimizer is None else type(optimizer).__name__
    if theirs != ours:
        raise InputError(f"the checkpoint's dense optimizer is {theirs} and this run's {ours}: use the same")
    if optimizer is not None and settings is not None:
        sizes = [len(group["params"]) for group in settings["groups"]]
        if sizes != [len(group["params"]) for group in optimizer.param_groups]:
            raise InputError("the checkpoint's dense optimizer has other parameter groups: build it the same way")
