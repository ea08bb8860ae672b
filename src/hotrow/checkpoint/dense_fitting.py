"""How saved dense tensors and optimizer state fit the network of a run, and each difference in one line. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotrow.checkpoint.renaming import Renames, layer_of, remedy
from hotrow.errors import InputError

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptimizerFacts:
    """A dense optimizer."""

    kind: str  # its class
    groups: tuple[int, ...]  # parameters of each group
    names: tuple[str | None, ...] | None  # of all parameters, in their order; None: a checkpoint without them

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> "OptimizerFacts | None":
        """From what a manifest says."""
        if settings is None:
            return None
        names = settings.get("names")
        sizes = tuple(len(group["params"]) for group in settings["groups"])
        return cls(settings["class"], sizes, None if names is None else tuple(names))


@dataclass(frozen=True, slots=True)
class DenseFacts:
    """Parameters and buffers of a network by name, and its optimizer."""

    tensors: Mapping[str, Shape]
    optimizer: OptimizerFacts | None


def check_same_tensors(saved: Mapping[str, Shape], ours: Mapping[str, Shape], way: str = "") -> None:
    """InputError where the tensors of a checkpoint are not those of our model; `way` is a way out."""
    same = f"build the model with the same settings{way}"
    if missing := sorted(set(ours) - set(saved)):
        raise InputError(f"the checkpoint has no {missing[0]!r} of this model: {same}")
    if unknown := sorted(set(saved) - set(ours)):
        raise InputError(f"the checkpoint has {unknown[0]!r}, this model has not: {same}")
    for name in sorted(saved):
        if saved[name] != ours[name]:
            raise InputError(f"{name!r} is {saved[name]} in the checkpoint and {ours[name]} in this model: {same}")


def check_same_optimizer(theirs: OptimizerFacts | None, ours: OptimizerFacts | None, way: str = "") -> None:
    """InputError where the dense optimizer of a checkpoint is not ours; `way` is a way out."""
    if _kind(theirs) != _kind(ours):
        message = f"the checkpoint's dense optimizer is {_kind(theirs)} and this run's {_kind(ours)}"
        raise InputError(f"{message}: use the same{way}")
    if theirs is None or ours is None:
        return
    if theirs.groups != ours.groups:
        raise InputError("the checkpoint's dense optimizer has other parameter groups: build it the same way")


def check_same_parameters(theirs: OptimizerFacts | None, ours: OptimizerFacts | None) -> None:
    """InputError where other parameters learn in a checkpoint than here, as far as their names are known."""
    if theirs is None or ours is None or not _all_named(theirs, ours):
        return
    saved, own = set(theirs.names or ()), set(ours.names or ())
    if saved != own:
        first = min(map(str, saved ^ own))
        where = "the checkpoint" if first in saved else "this run"
        raise InputError(f"{first!r} learns in {where} alone: give the dense optimizer the same parameters")


def plan_tensors(
    name: str, saved: Mapping[str, Shape], ours: Mapping[str, Shape], asked: Renames
) -> tuple[dict[str, str], list[str]]:
    """Our name of each tensor of the checkpoint `name`, and the differences; InputError where one cannot be used."""
    sources: dict[str, str] = {}
    left: set[str] = set()
    for each in sorted(saved):
        target = asked.tensor(each)
        if target is None:
            left.add(each)
            continue
        if target not in ours:
            what = f"{each!r}" if target == each else f"{each!r}, mapped to {target!r},"
            raise InputError(f"checkpoint {name}: dense tensor {what} is not in this model: {remedy(layer_of(each))}")
        if saved[each] != ours[target]:
            message = f"{each!r} is {saved[each]} in the checkpoint and {ours[target]} in this model"
            way = f"leave it out with --skip {layer_of(each)}, then it starts fresh"
            raise InputError(f"checkpoint {name}: {message}: {way}")
        if target in sources:
            message = f"dense tensors {sources[target]!r} and {each!r} would both become {target!r}"
            raise InputError(f"checkpoint {name}: {message}: {remedy(layer_of(each))}")
        sources[target] = each
    fresh = set(ours) - set(sources)
    lines = [f"dense layer {old!r} of the checkpoint is {new!r} here" for old, new in asked.renamed_layers()]
    for layer, tensors in _by_layer(left):
        again = ": it starts fresh" if fresh & set(tensors) else ""
        lines.append(f"dense layer {layer!r} ({_last(tensors)}) of the checkpoint is left out{again}")
    for layer, tensors in _by_layer(fresh - left):
        lines.append(f"dense layer {layer!r} ({_last(tensors)}) is not in the checkpoint: it starts fresh")
    return {source: target for target, source in sources.items()}, lines


def plan_optimizer(
    theirs: OptimizerFacts | None, ours: OptimizerFacts | None, tensors: Mapping[str, str], *, same_tensors: bool
) -> tuple[dict[int, int], list[str]]:
    """Our number of each parameter whose state is taken, and the differences.

    `tensors` has our name of each saved tensor. Without names of parameters their order counts, where the tensors are
    the same.
    """
    if theirs is None or ours is None or theirs.kind != ours.kind:
        if _kind(theirs) == _kind(ours):
            return {}, []
        differ = f"the dense optimizer is {_kind(theirs)} in the checkpoint and {_kind(ours)} here"
        return {}, [f"{differ}: its state starts fresh"]
    states = states_by_name(theirs, ours, tensors)
    if states is None:
        if same_tensors and theirs.groups == ours.groups:
            return states_by_order(ours), []
        return {}, ["the checkpoint does not name the parameters of the dense optimizer: its state starts fresh"]
    lines = []
    if unused := [name for at, name in enumerate(theirs.names or ()) if at not in states and name in tensors]:
        lines.append(f"dense optimizer: {_listed(unused)} of the checkpoint does not learn here: its state is left out")
    taken, loaded = set(states.values()), set(tensors.values())
    if fresh := [name for at, name in enumerate(ours.names or ()) if at not in taken and name in loaded]:
        lines.append(f"dense optimizer: {_listed(fresh)} did not learn in the checkpoint: its state starts fresh")
    return states, lines


def states_by_name(theirs: OptimizerFacts, ours: OptimizerFacts, tensors: Mapping[str, str]) -> dict[int, int] | None:
    """Our number of each saved parameter that learns here; None where names are not all known."""
    if not _all_named(theirs, ours):
        return None
    own = {name: number for number, name in enumerate(ours.names or ())}
    targets = {number: tensors.get(str(name)) for number, name in enumerate(theirs.names or ())}
    return {number: own[target] for number, target in targets.items() if target in own}


def states_by_order(ours: OptimizerFacts) -> dict[int, int]:
    """Every parameter has the number that it had."""
    return {number: number for number in range(sum(ours.groups))}


def _all_named(*optimizers: OptimizerFacts) -> bool:
    return all(each.names is not None and None not in each.names for each in optimizers)


def _by_layer(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    layers: dict[str, list[str]] = {}
    for name in sorted(names):
        layers.setdefault(layer_of(name), []).append(name)
    return list(layers.items())


def _last(tensors: Sequence[str]) -> str:
    return ", ".join(name.rpartition(".")[2] for name in tensors)


def _kind(optimizer: OptimizerFacts | None) -> str | None:
    return None if optimizer is None else optimizer.kind


def _listed(names: Sequence[str | None]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3:,} more" if names[3:] else "")
