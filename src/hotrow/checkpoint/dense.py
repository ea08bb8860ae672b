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

from hotrow.checkpoint.dense_fitting import DenseFacts, OptimizerFacts, check_same_optimizer, check_same_tensors
from hotrow.checkpoint.fitting import LoadPlan
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


def facts_of(model: nn.Module, optimizer: Optimizer | None) -> DenseFacts:
    """Of a network, to be compared with those of a checkpoint."""
    shapes = {name: tuple(_tensor(name, value).shape) for name, value in model.state_dict().items()}
    if optimizer is None:
        return DenseFacts(shapes, None)
    sizes = tuple(len(group["params"]) for group in optimizer.param_groups)
    return DenseFacts(shapes, OptimizerFacts(type(optimizer).__name__, sizes, tuple(_names(model, optimizer))))


def saved_facts(tensors: Mapping[str, Tensor], settings: Mapping[str, Any] | None) -> DenseFacts:
    """Of a checkpoint."""
    shapes = {name: tuple(value.shape) for name, value in _parameters(tensors).items()}
    return DenseFacts(shapes, OptimizerFacts.of(settings))


def restore(
    tensors: Mapping[str, Tensor],
    model: nn.Module,
    optimizer: Optimizer | None,
    settings: Mapping[str, Any] | None,
    plan: LoadPlan,
) -> None:
    """Put tensors and optimizer state where a plan says; all others stay as they are."""
    found = _parameters(tensors)
    model.load_state_dict(model.state_dict() | {ours: found[name] for name, ours in plan.tensors.items()})
    if optimizer is None or settings is None or not plan.states:
        return
    own = optimizer.state_dict()
    saved = _states(tensors, settings)
    for number, ours in plan.states.items():
        own["state"].pop(ours, None)  # saved before its first step, a parameter has none
        if number in saved:
            own["state"][ours] = saved[number]
    optimizer.load_state_dict(own)  # the groups are the run's own, only the state is the checkpoint's


def restore_random(tensors: Mapping[str, Tensor]) -> None:
    """Continue torch's random numbers where they were saved."""
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
            "names": _names(model, optimizer),
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
    theirs, here = saved_facts(tensors, settings), facts_of(model, optimizer)
    check_same_tensors(theirs.tensors, here.tensors)
    check_same_optimizer(theirs.optimizer, here.optimizer)
    model.load_state_dict(parameters)
    if optimizer is None or settings is None:
        return
    state = _states(tensors, settings)
    ours = [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict({"state": state, "param_groups": settings["groups"]})
    for group, own in zip(optimizer.param_groups, ours, strict=True):
        group.update(own)  # settings are the run's, only the state is the checkpoint's


def _names(model: nn.Module, optimizer: Optimizer) -> list[str | None]:
    """Of the optimizer's parameters, in their order; None: not one of the model."""
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    return [known.get(id(parameter)) for group in optimizer.param_groups for parameter in group["params"]]


def _states(tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """The optimizer's state by number of the parameter."""
    state: dict[int, dict[str, Any]] = {int(number): dict(plain) for number, plain in settings["plain"].items()}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, number, entry = name.split(".", 2)
            state[int(number)][entry] = value
    return state


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
