"""Writing a checkpoint: tables and dense tensors to a new folder, then the manifest, then what is superfluous goes.

The manifest appears last and whole. Until then a reader sees the checkpoint before; a program that dies leaves a folder
without a manifest, which the next save removes.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from hotrow.checkpoint.chain import ChainLink, superfluous, unfinished
from hotrow.checkpoint.manifest import (
    DENSE,
    FILE,
    Base,
    Manifest,
    SavedTableFacts,
    digest_of,
    folder_of,
    number_of,
    read_manifest,
)
from hotrow.checkpoint.place import Place, SavedFile
from hotrow.checkpoint.reader import SavedLink, numbers_in
from hotrow.checkpoint.rows import Watch
from hotrow.disk import cannot_write, check_room, written
from hotrow.errors import ConfigError, FileError, InputError

_log = logging.getLogger("hotrow.checkpoint")
WHAT = "the checkpoint"
MARGIN = 64 * 2**10  # bytes of a manifest, and of headers of files


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a checkpoint beside tensors and rows. All of it is JSON."""

    counters: dict[str, Any]
    position: dict[str, Any] | None
    about: dict[str, Any]  # what the maker wanted to keep with it
    mode: dict[str, Any] | None = None  # settings of the mode


@dataclass(frozen=True, slots=True)
class DenseTensors:
    """Parameters, buffers and optimizer tensors in the format of safetensors; the rest of the optimizer as JSON."""

    data: bytes
    optimizer: dict[str, Any] | None


class TablesCut(Protocol):
    """The rows of all tables as they were at one moment."""

    @property
    def frozen(self) -> bool:
        """Whether training may go on while it is written."""

    @property
    def delta(self) -> bool:
        """Whether only the rows are written that changed since the cut before."""

    @property
    def bytes(self) -> int:
        """About what will be written."""

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        """Write all files; the facts of each table, and of each file."""

    def close(self, *, saved: bool) -> None:
        """Forget the moment. Where it was not saved, what changed before it still counts as changed."""


def write_checkpoint(
    where: str | Path | Place,
    dense: DenseTensors | None,
    tables: TablesCut,
    saved: Saved,
    *,
    base: Base | None = None,
    keep: int = 1,
    watch: Watch = lambda _: None,
) -> SavedLink:
    """Write the next checkpoint of a folder, and remove all but the newest `keep` and what they build on.

    `base` is what a delta builds on; without `dense` it holds tables alone. FileError where the file system does not
    take it, if possible before anything is written: then the checkpoints before are whole, and nothing of the new one
    is left.
    """
    place = Place.of(where)
    size = MARGIN + (0 if dense is None else len(dense.data)) + tables.bytes
    kept = False
    try:
        check_keep(keep)
        with written(Path(place.name), WHAT, size):
            folder = place.folder(folder_of(_next_number(place)))
        if folder.local is not None:
            check_room(folder.local, size, WHAT)
        try:
            manifest = _written(folder, dense, tables, saved, base, watch)
        except BaseException as error:
            with suppress(OSError):
                folder.delete(FILE)
            if isinstance(error, OSError | SafetensorError):
                cause = error if isinstance(error, OSError) else str(error)
                raise cannot_write(place.local or place.name, WHAT, size, cause) from None
            raise
        kept = True
    finally:
        tables.close(saved=kept)
    try:
        remove_superfluous(place, keep)
    except FileError as error:  # the new one is whole, and the next save tries again
        _log.warning("%s", error)
    return manifest


def check_keep(keep: int) -> None:
    """ConfigError where no checkpoint would be left."""
    if keep < 1:
        raise ConfigError(f"keep={keep}: the newest checkpoint is always kept: give 1 or more")


def remove_superfluous(place: Place, keep: int) -> None:
    """Remove checkpoints that the newest `keep` do not need, and folders that a save which died has left.

    One whose manifest cannot be read stays: what builds on it is not known.
    """
    links = {}
    for number in numbers_in(place):
        with suppress(InputError):
            found, digest = read_manifest(place.folder(folder_of(number)))
            links[number] = ChainLink(number, digest, found.base)
    for number in superfluous(links, keep):
        with written(place.local or place.name, f"checkpoint {folder_of(number)}, which is to be removed,"):
            place.folder(folder_of(number)).delete(FILE)
    discard_unfinished(place)


def discard_unfinished(where: str | Path | Place) -> None:
    """Remove what a run that died while it wrote a checkpoint has left."""
    place = Place.of(where)
    numbers = [number for name in place.folders() if (number := number_of(name)) is not None]
    for number in unfinished(numbers, numbers_in(place)):
        with written(place.local or place.name, "the rest of a checkpoint that was not finished"):
            place.folder(folder_of(number)).delete(FILE)


def _next_number(place: Place) -> int:
    return max((number for name in place.folders() if (number := number_of(name)) is not None), default=0) + 1


def _written(
    folder: Place, dense: DenseTensors | None, tables: TablesCut, saved: Saved, base: Base | None, watch: Watch
) -> SavedLink:
    facts, files = tables.write(folder, watch)
    if dense is not None:
        with folder.write(DENSE, watch) as sink:
            sink.write(dense.data)
        files = {**files, DENSE: sink.facts}
    manifest = Manifest(
        number=number_of(folder.path.rpartition("/")[2]) or 0,
        kind="full" if base is None else "delta",
        base=base,
        hotrow=version("hotrow"),
        saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
        counters=saved.counters,
        mode=saved.mode,
        position=saved.position,
        about=saved.about,
        optimizer=None if dense is None else dense.optimizer,
        tables=facts,
        files=files,
    )
    return publish(folder, manifest)


def publish(folder: Place, manifest: Manifest) -> SavedLink:
    """Make a checkpoint whole: all its files are there, and now its manifest."""
    data = manifest.encoded()
    folder.write_last(FILE, data)
    return SavedLink(folder, manifest, digest_of(data))
