"""How a checkpoint fits a run: which saved rows and tensors go where, and each difference in one line. Pure.

A strict plan allows no difference. Otherwise everything in the checkpoint has to be used, or named in `skip`; what the
run has beyond that starts fresh.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hotrow.checkpoint.dense_fitting import (
    DenseFacts,
    check_same_optimizer,
    check_same_parameters,
    check_same_tensors,
    plan_optimizer,
    plan_tensors,
    states_by_name,
    states_by_order,
)
from hotrow.checkpoint.manifest import SavedTableFacts
from hotrow.checkpoint.renaming import Renames
from hotrow.checkpoint.table_fitting import OurTable, TablePlan, check_same_tables, plan_tables, table_plan
from hotrow.errors import InputError

WAY = ", or start a new run from it with --load (in Python strict=False)"


@dataclass(frozen=True, slots=True)
class SavedFacts:
    """The content of a checkpoint, as far as it has to fit."""

    name: str  # for messages
    tables: Mapping[str, SavedTableFacts]
    dense: DenseFacts | None  # None: it holds tables alone


@dataclass(frozen=True, slots=True)
class RunTargets:
    """Tables and network of a run."""

    tables: Mapping[str, OurTable]
    dense: DenseFacts


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What goes where, and the differences as sentences."""

    tables: dict[str, TablePlan]  # by our name
    tensors: dict[str, str]  # saved name -> ours
    states: dict[int, int]  # number of a parameter in the saved optimizer -> in ours
    lines: list[str] = field(default_factory=list)


def plan_strictly(saved: SavedFacts, ours: RunTargets) -> LoadPlan:
    """For a run with the same tables and network; InputError names the first difference."""
    check_same_tables(saved.name, saved.tables, ours.tables, WAY)
    if saved.dense is None:
        raise InputError(f"checkpoint {saved.name}: it holds tables alone, no dense tensors: take another one{WAY}")
    check_same_tensors(saved.dense.tensors, ours.dense.tensors, WAY)
    theirs, own = saved.dense.optimizer, ours.dense.optimizer
    check_same_optimizer(theirs, own, WAY)
    check_same_parameters(theirs, own)
    tensors = {name: name for name in ours.dense.tensors}
    states = None if theirs is None or own is None else states_by_name(theirs, own, tensors)
    return LoadPlan(
        {name: table_plan(name, saved.tables[name], table) for name, table in ours.tables.items()},
        tensors,
        states if states is not None else {} if own is None else states_by_order(own),
    )


def plan_load(saved: SavedFacts, ours: RunTargets, renames: Mapping[str, str], skip: Iterable[str]) -> LoadPlan:
    """For a run that may differ; InputError where a part of the checkpoint cannot be used and is not skipped."""
    tensors = {} if saved.dense is None else saved.dense.tensors
    asked = Renames(saved.name, renames, skip, saved.tables, tensors)
    tables, lines = plan_tables(saved.name, saved.tables, ours.tables, asked)
    if saved.dense is None:
        return LoadPlan(tables, {}, {}, [*lines, "the checkpoint holds tables alone: the network starts fresh"])
    names, dense_lines = plan_tensors(saved.name, tensors, ours.dense.tensors, asked)
    states, optimizer_lines = plan_optimizer(
        saved.dense.optimizer, ours.dense.optimizer, names, same_tensors=not dense_lines
    )
    return LoadPlan(tables, names, states, [*lines, *dense_lines, *optimizer_lines])
