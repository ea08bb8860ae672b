"""The manifest of a checkpoint: what was saved, in which files, and on which checkpoint it builds. Plain JSON.

A checkpoint is `full`, or a `delta`: the rows that changed since the one before it, its base, and the keys that were
removed since then.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import xxhash
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hotrow.checkpoint.place import Place, SavedFile
from hotrow.errors import InputError

FORMAT: Literal["hotrow checkpoint"] = "hotrow checkpoint"
VERSION: Literal[3] = 3
FILE = "manifest.json"
DENSE = "dense.safetensors"
OLDER = {
    1: "ids of texts and keys of shared tables come from another hash there, so they would name other rows",
    2: "it has one file for each table and no number",
}
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    """Immutable; fields that are not known are refused, so that a newer format is not read for an older one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SavedShard(_Part):
    """The files of one shard of a table, as paths in the checkpoint's folder."""

    rows: str
    count: Count  # rows in the file
    removed: str | None = None  # keys removed since the base
    removed_count: Count = 0
    admission: str | None = None  # exact counts of keys that wait for admission
    filter: str | None = None  # counters of the counting Bloom filters, a batch for each partition


class SavedTableFacts(_Part):
    """One table: its settings, and a part for every shard."""

    settings: dict[str, Any]
    dim: Count
    state_dim: Count
    fields: tuple[str, ...]  # counters of every row
    rows: Count  # of the table when it was saved, with those of the base that did not change
    shards: tuple[SavedShard, ...] = Field(min_length=1)


class Base(_Part):
    """The checkpoint that a delta builds on."""

    number: Count
    digest: str  # of its manifest


class Manifest(_Part):
    """Everything about a checkpoint beside tensors and rows."""

    format: Literal["hotrow checkpoint"] = FORMAT
    version: Literal[3] = VERSION
    number: int = Field(ge=1)
    kind: Literal["full", "delta"]
    base: Base | None = None
    hotrow: str  # version of the program
    saved_at: str  # ISO 8601, UTC
    counters: dict[str, Any]  # step, samples and the like
    mode: dict[str, Any] | None = None  # settings of the mode
    position: dict[str, Any] | None  # which batches of which epoch are done
    about: dict[str, Any]  # of the caller
    optimizer: dict[str, Any] | None  # class, groups and plain state of the dense one
    tables: dict[str, SavedTableFacts]
    files: dict[str, SavedFile]

    @property
    def has_dense(self) -> bool:
        """Whether there are dense tensors; imported tables have none."""
        return DENSE in self.files

    @property
    def size(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(each.bytes for each in self.files.values())

    def unlisted(self) -> Iterator[tuple[str, str]]:
        """Tables with those of their files that `files` does not have."""
        for name, table in self.tables.items():
            for shard in table.shards:
                named = (shard.rows, shard.removed, shard.admission, shard.filter)
                yield from ((name, file) for file in named if file is not None and file not in self.files)

    def encoded(self) -> bytes:
        """As the file holds it."""
        return json.dumps(self.model_dump(mode="json"), indent=1).encode() + b"\n"


def digest_of(data: bytes) -> str:
    """Of an encoded manifest: what a delta knows its base by."""
    return xxhash.xxh3_128_hexdigest(data)


def folder_of(number: int) -> str:
    """The name of the folder of a checkpoint."""
    return f"{number:06d}"


def number_of(folder: str) -> int | None:
    """The number that a folder's name says; None where it is not the folder of a checkpoint."""
    if not (folder.isascii() and folder.isdigit()):
        return None
    return int(folder) if folder == folder_of(int(folder)) else None


def read_manifest(place: Place) -> tuple[Manifest, str]:
    """The manifest in a folder and its digest; InputError where it is missing, damaged or of another version."""
    who = f"checkpoint {place.name}"
    if not place.has(FILE):
        raise InputError(f"{who}: there is no {FILE} in it: name a folder that Trainer.save wrote")
    data = place.read(FILE)
    try:
        found = json.loads(data)
    except ValueError as error:
        raise InputError(f"{who}: {FILE} cannot be read ({error}): take another checkpoint") from None
    check_version(who, found)
    try:
        return Manifest.model_validate(found), digest_of(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{who}: {FILE} is damaged: {where}: {first['msg']}: take another checkpoint") from None


def check_version(who: str, found: Any) -> None:
    """InputError where a manifest is not one of this version."""
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        raise InputError(f"{who}: {FILE} is not one of ours: name a folder that Trainer.save wrote")
    if (version := found.get("version")) != VERSION:
        reason = f" ({OLDER[version]})" if isinstance(version, int) and version in OLDER else ""
        message = f"its version is {version!r} and this Hotrow reads {VERSION}{reason}"
        raise InputError(f"{who}: {message}: use the Hotrow that wrote it, or train anew")
