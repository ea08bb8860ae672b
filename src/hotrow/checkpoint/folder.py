"""A checkpoint is a folder: a manifest, the dense tensors, and one file of rows per table.

It is written beside its place, synced, and then takes its place by renaming: a run that dies leaves the one before.
Before anything is loaded every file is compared with its length and checksum, and every table with its kind.
"""

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors import SafetensorError
from torch import nn
from torch.optim import Optimizer

from hotrow.checkpoint import dense, rows
from hotrow.disk import cannot_write, check_room, part_of, written
from hotrow.errors import InputError
from hotrow.store import SavedTable
from hotrow.store.saved import check_same_kind

FORMAT, VERSION = "hotrow checkpoint", 2
OLDER = {1: "ids of texts and keys of shared tables come from another hash there, so they would name other rows"}
MANIFEST, DENSE = "manifest.json", "dense.safetensors"
NOTHING = object()
FIELDS: dict[str, Any] = {  # of a manifest, with what each must be
    "counters": dict, "position": dict | None, "about": dict, "optimizer": dict | None, "tables": dict, "files": dict,
}  # fmt: skip
WHAT = "the checkpoint"
MARGIN = 64 * 2**10  # bytes of a manifest, and of headers of files


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a checkpoint beside tensors and rows. All of it is JSON."""

    counters: dict[str, Any]
    position: dict[str, Any] | None
    about: dict[str, Any]  # what the maker wanted to keep with it


def save(
    folder: Path, model: nn.Module, optimizer: Optimizer | None, tiers: Mapping[str, SavedTable], saved: Saved
) -> Path:
    """Write a checkpoint; one that is there is replaced when the new one is whole.

    FileError where the file system does not take it, if possible before anything is written: then the one before is
    whole, and nothing of the new one is left to fill the disk.
    """
    discard_unfinished(folder)
    size = bytes_of(model, optimizer, tiers)
    check_room(folder, size, WHAT)
    fresh = part_of(folder)
    try:
        _write(fresh, model, optimizer, tiers, saved)
        _take_place(fresh, folder)
    except BaseException as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):  # the latter has a message of its own for a full disk
            raise cannot_write(folder, WHAT, size, error if isinstance(error, OSError) else str(error)) from None
        raise
    return folder


def discard_unfinished(folder: Path) -> None:
    """Remove what a run that died while it wrote this checkpoint has left beside it."""
    fresh = part_of(folder)
    if fresh.exists():
        with written(fresh, "the rest of a checkpoint that was not finished"):
            shutil.rmtree(fresh)


def bytes_of(model: nn.Module, optimizer: Optimizer | None, tiers: Mapping[str, SavedTable]) -> int:
    """The approximate size of a checkpoint: rows and tensors exactly, and an estimate for the rest."""
    return MARGIN + dense.bytes_of(model, optimizer) + sum(rows.bytes_of(tier) for tier in tiers.values())


def _write(
    fresh: Path, model: nn.Module, optimizer: Optimizer | None, tiers: Mapping[str, SavedTable], saved: Saved
) -> None:
    (fresh / "tables").mkdir(parents=True)
    settings = dense.write(fresh / DENSE, model, optimizer)
    tables = {}
    for number, (name, tier) in enumerate(tiers.items()):
        file = f"tables/{number}.arrow"  # a table's name need not fit a file's
        count = rows.write(fresh / file, tier)
        tables[name] = {"file": file, "rows": count, "settings": tier.table.model_dump(mode="json")}
    files = [DENSE, *(str(table["file"]) for table in tables.values())]
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "counters": saved.counters,
        "position": saved.position,
        "about": saved.about,
        "optimizer": settings,
        "tables": tables,
        "files": {file: _fingerprint(fresh / file) for file in files},
    }
    (fresh / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    for file in [*files, MANIFEST, ".", "tables"]:
        _sync(fresh / file)


def exists(folder: Path) -> bool:
    """Whether there is one to load."""
    return _whole(folder).is_dir()


def peek(folder: Path) -> Saved:
    """The manifest of a checkpoint, without loading it."""
    manifest = _manifest(_whole(folder))
    return Saved(manifest["counters"], manifest["position"], manifest["about"])


def load(folder: Path, model: nn.Module, optimizer: Optimizer | None, tiers: Mapping[str, SavedTable]) -> Saved:
    """Put everything back. A checkpoint that does not fit is refused before anything changes."""
    folder = _whole(folder)
    manifest = _manifest(folder)
    _check_files(folder, manifest["files"])
    _check_tables(folder, manifest["tables"], tiers)
    try:
        dense.read(folder / DENSE, model, optimizer, manifest["optimizer"])
        for name, tier in tiers.items():
            rows.read(folder / manifest["tables"][name]["file"], tier)
    except (SafetensorError, pa.ArrowException, KeyError) as error:  # made by another program, or by a bug of ours
        raise InputError(f"checkpoint {folder}: a file in it cannot be read: {error}: take another one") from None
    return Saved(manifest["counters"], manifest["position"], manifest["about"])


def tables(folder: Path) -> dict[str, int]:
    """The tables of a checkpoint, and how many rows each has."""
    return {name: int(table["rows"]) for name, table in _manifest(_whole(folder))["tables"].items()}


def open_rows(folder: Path, table: str, *, check: bool = True) -> rows.SavedRows:
    """The rows of one table, without loading the checkpoint. `check` compares its file with its checksum first."""
    folder = _whole(folder)
    manifest = _manifest(folder)
    try:
        saved = manifest["tables"][table]
        if check:
            _check_files(folder, {saved["file"]: manifest["files"][saved["file"]]})
        return rows.SavedRows(folder / saved["file"], int(saved["rows"]))
    except (pa.ArrowException, KeyError, AttributeError) as error:
        raise InputError(f"checkpoint {folder}: table {table!r} cannot be read: {error}: take another one") from None


def _whole(folder: Path) -> Path:
    """The folder, or the one it was about to replace when its writer died between two renames."""
    before = _before(folder)
    if folder.is_dir() or not before.is_dir():
        return folder
    return before


def _before(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def _take_place(fresh: Path, folder: Path) -> None:
    before = _before(folder)
    if folder.exists():
        if before.exists():
            shutil.rmtree(before)
        folder.rename(before)
    try:
        fresh.rename(folder)
    except OSError:
        if before.exists():
            before.rename(folder)
        raise
    _sync(folder.parent)
    shutil.rmtree(before, ignore_errors=True)  # the new one is in its place: what is left of the old one is no fault


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"checkpoint {folder}: there is no {MANIFEST} in it: name a folder that Trainer.save wrote")
    try:
        manifest = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"checkpoint {folder}: {MANIFEST} cannot be read ({error}): take another checkpoint") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"checkpoint {folder}: {MANIFEST} is not one of ours: name a folder that Trainer.save wrote")
    if manifest.get("version") != VERSION:
        found = manifest.get("version")
        reason = f" ({OLDER[found]})" if isinstance(found, int) and found in OLDER else ""
        message = f"its version is {found!r} and this Hotrow reads {VERSION}{reason}"
        raise InputError(f"checkpoint {folder}: {message}: use the Hotrow that wrote it, or train anew")
    for name, kinds in FIELDS.items():
        if not isinstance(manifest.get(name, NOTHING), kinds):
            raise InputError(f"checkpoint {folder}: {MANIFEST} is damaged: its field {name!r} is not what it must be")
    return manifest


def _check_files(folder: Path, expected: Mapping[str, Mapping[str, int]]) -> None:
    for file, fingerprint in expected.items():
        path = folder / file
        if not path.is_file():
            raise InputError(f"checkpoint {folder}: {file} is missing: take another checkpoint")
        if _fingerprint(path) != fingerprint:
            raise InputError(f"checkpoint {folder}: {file} was changed or cut since it was saved: take another one")


def _check_tables(folder: Path, saved: Mapping[str, Any], tiers: Mapping[str, SavedTable]) -> None:
    if set(saved) != set(tiers):
        theirs, ours = ", ".join(sorted(saved)), ", ".join(sorted(tiers))
        raise InputError(f"checkpoint {folder}: it has the tables {theirs} and this run {ours}: use the same")
    for name, tier in tiers.items():
        check_same_kind(tier.table, saved[name]["settings"])
        if tier.capacity_rows and saved[name]["rows"] > tier.capacity_rows:
            message = f"{saved[name]['rows']:,} rows do not fit capacity={tier.table.capacity!r}"
            raise InputError(f"checkpoint {folder}: table {name!r}: {message}: give it more")


def _fingerprint(path: Path) -> dict[str, int]:
    checksum = length = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            checksum = zlib.crc32(block, checksum)
            length += len(block)
    return {"bytes": length, "crc32": checksum}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
