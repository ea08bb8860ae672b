"""Loading a checkpoint into a model and its tables. What does not fit is refused before anything changes."""

from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from torch import nn
from torch.optim import Optimizer

from hotrow.checkpoint import dense
from hotrow.checkpoint.local_cut import ExportedRows, LocalCut, shape_of
from hotrow.checkpoint.manifest import DENSE, SavedTableFacts
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.rows import Watch
from hotrow.checkpoint.saving import MARGIN, DenseTensors, Saved, TablesCut, write_checkpoint
from hotrow.config import AtLeast
from hotrow.errors import InputError
from hotrow.store import RamTier, SavedTable
from hotrow.store.saved import check_same_kind


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


def load(
    where: str | Path | Place,
    model: nn.Module,
    optimizer: Optimizer | None,
    tiers: Mapping[str, SavedTable],
    *,
    watch: Watch = lambda _: None,
    changing: Callable[[], object] = lambda: None,
) -> Saved:
    """Put everything back. A checkpoint that does not fit is refused before anything changes.

    `changing` is called right before that: what fails later leaves rows and dense parameters of different steps.
    """
    found = SavedCheckpoint.open(where)
    found.verify(watch)
    _check_tables(found.name, found.manifest.tables, tiers)
    try:
        tensors = dense.checked(found.dense(), model, optimizer, found.manifest.optimizer)
    except SafetensorError as error:  # made by another program, or by a bug of ours
        raise InputError(f"checkpoint {found.name}: {DENSE} cannot be read: {error}: take another one") from None
    changing()
    dense.restore(tensors, model, optimizer, found.manifest.optimizer)
    for name, tier in tiers.items():
        tier.clear()
        for chunk in found.rows(name):
            fields = {field: column for field, column in chunk.fields.items() if field in tier.fields}
            tier.put(chunk.keys, chunk.values, chunk.state if tier.state_dim else None, fields)
        if isinstance(tier, RamTier):
            restore_admission(found, name, tier)
    return content_of(found)


def restore_admission(found: SavedCheckpoint, name: str, tier: RamTier) -> None:
    """Counts of keys that wait for admission come back where the rule is the same; else counting begins anew."""
    ours = tier.table.admission
    if not isinstance(ours, AtLeast) or found.table(name).settings.get("admission") != ours.model_dump(mode="json"):
        return
    if ours.filter is None:
        tier.restore_waiting(found.waiting(name))
    elif filters := found.filters(name):
        tier.restore_filters(filters)


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


def _check_tables(name: str, saved: Mapping[str, SavedTableFacts], tiers: Mapping[str, SavedTable]) -> None:
    if set(saved) != set(tiers):
        theirs, ours = ", ".join(sorted(saved)), ", ".join(sorted(tiers))
        raise InputError(f"checkpoint {name}: it has the tables {theirs} and this run {ours}: use the same")
    for table, tier in tiers.items():
        facts = saved[table]
        check_same_kind(tier.table, facts.settings)
        if tier.capacity_rows and facts.rows > tier.capacity_rows:
            message = f"{facts.rows:,} rows do not fit capacity={tier.table.capacity!r}"
            raise InputError(f"checkpoint {name}: table {table!r}: {message}: give it more")
