"""Loading a checkpoint into a model and its tables. What does not fit is refused before anything changes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.checkpoint import dense
from hotrow.checkpoint.finding import find_checkpoints
from hotrow.checkpoint.fitting import RunTargets, SavedFacts, plan_load, plan_strictly
from hotrow.checkpoint.loaded_rows import lines_of
from hotrow.checkpoint.local_cut import ExportedRows, LocalCut, shape_of
from hotrow.checkpoint.manifest import DENSE
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.row_loader import LocalRowLoader, RowLoader
from hotrow.checkpoint.rows import Watch
from hotrow.checkpoint.saving import MARGIN, DenseTensors, Saved, TablesCut, write_checkpoint
from hotrow.checkpoint.table_fitting import OurTable
from hotrow.errors import InputError
from hotrow.store import RamTier, SavedTable


def save(
    where: str | Path | Place,
    model: nn.Module,
    optimizer: Optimizer | None,
    tiers: Mapping[str, SavedTable],
    saved: Saved,
    *,
    keep: int = 1,
    watch: Watch = lambda _: None,
) -> Path:
    """Write the next checkpoint of a folder from this process; returns the folder."""
    tensors = DenseTensors(*dense.saved(model, optimizer))
    place = Place.of(where)
    write_checkpoint(place, tensors, cut_of(tiers), saved, keep=keep, watch=watch)
    return Path(place.name)


def cut_of(tiers: Mapping[str, SavedTable], *, delta: bool = False) -> TablesCut:
    """The rows of tables of this process at this moment; of others as long as nothing changes them."""
    own = {name: tier for name, tier in tiers.items() if isinstance(tier, RamTier)}
    return LocalCut(own, delta=delta) if len(own) == len(tiers) else ExportedRows(tiers)


@dataclass(frozen=True, slots=True)
class LoadRules:
    """How a checkpoint may differ from a run: the new names of tables and dense layers, and those to leave out."""

    map: Mapping[str, str] = field(default_factory=dict)
    skip: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was saved beside tensors and rows, and each difference from the run as a sentence."""

    saved: Saved
    lines: Sequence[str] = ()


def load(
    where: str | Path | Place,
    model: nn.Module,
    optimizer: Optimizer | None,
    tables: Mapping[str, SavedTable] | RowLoader,
    *,
    watch: Watch = lambda _: None,
    changing: Callable[[], object] = lambda: None,
) -> Loaded:
    """Put everything back. A checkpoint that does not fit is refused before anything changes.

    `changing` is called right before that: what fails later leaves rows and dense parameters of different steps.
    """
    return _load(SavedCheckpoint.open(where), model, optimizer, _loader(tables), None, watch, changing)


def load_into(
    where: str | Path | Place,
    model: nn.Module,
    optimizer: Optimizer | None,
    tables: Mapping[str, SavedTable] | RowLoader,
    rules: LoadRules,
    *,
    watch: Watch = lambda _: None,
    changing: Callable[[], object] = lambda: None,
) -> Loaded:
    """Load what fits a run that differs, as `load` otherwise. What would be left unused has to be in `rules`.

    `where` may be a run too. What the checkpoint does not have starts fresh, and torch's random numbers are the run's.
    """
    found = SavedCheckpoint.open(find_checkpoints(where))
    return _load(found, model, optimizer, _loader(tables), rules, watch, changing)


def _load(
    found: SavedCheckpoint,
    model: nn.Module,
    optimizer: Optimizer | None,
    rows: RowLoader,
    rules: LoadRules | None,
    watch: Watch,
    changing: Callable[[], object],
) -> Loaded:
    rows.verify(found, watch)
    manifest = found.manifest
    tensors = _tensors(found)
    saved_dense = None if tensors is None else dense.saved_facts(tensors, manifest.optimizer)
    saved = SavedFacts(found.name, manifest.tables, saved_dense)
    ours = {name: OurTable(tier.table, tier.fields, tier.capacity_rows) for name, tier in rows.tiers.items()}
    targets = RunTargets(ours, dense.facts_of(model, optimizer))
    plan = plan_strictly(saved, targets) if rules is None else plan_load(saved, targets, rules.map, rules.skip)
    loaded = rows.load(found, plan.tables, changing)
    if tensors is not None:
        dense.restore(tensors, model, optimizer, manifest.optimizer, plan)
        if rules is None:
            dense.restore_random(tensors)
    lines = (lines_of(name, tier.table, plan.tables[name], loaded[name]) for name, tier in rows.tiers.items())
    return Loaded(content_of(found), [*plan.lines, *(line for each in lines for line in each)])


def _loader(tables: Mapping[str, SavedTable] | RowLoader) -> RowLoader:
    return LocalRowLoader(tables) if isinstance(tables, Mapping) else tables


def _tensors(found: SavedCheckpoint) -> dict[str, Tensor] | None:
    if not found.manifest.has_dense:
        return None
    try:
        return load_tensors(found.dense())
    except SafetensorError as error:  # made by another program, or by a bug of ours
        raise InputError(f"checkpoint {found.name}: {DENSE} cannot be read: {error}: take another one") from None


def content_of(found: SavedCheckpoint) -> Saved:
    """What was saved beside tensors and rows."""
    manifest = found.manifest
    return Saved(manifest.counters, manifest.position, manifest.about, manifest.mode)


def peek(where: str | Path | Place) -> Saved:
    """The same, without loading anything."""
    return content_of(SavedCheckpoint.open(where))


def bytes_of(model: nn.Module, optimizer: Optimizer | None, tiers: Mapping[str, SavedTable]) -> int:
    """The approximate size of a full checkpoint: rows and tensors exactly, and an estimate for the rest."""
    rows = sum(len(tier) * shape_of(tier).bytes for tier in tiers.values())
    return MARGIN + dense.bytes_of(model, optimizer) + rows
