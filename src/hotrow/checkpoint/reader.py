"""A checkpoint, read without torch and without training: what is in it, whether it is whole, the rows of its tables.

The rows of a table are those of the full checkpoint and of every delta after it, each key once, in its newest form.
Serving reads the same chain: the numbers of new checkpoints rise, and a delta holds everything that changed.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.checkpoint.chain import ChainLink, chain_of
from hotrow.checkpoint.manifest import DENSE, FILE, Manifest, SavedTableFacts, folder_of, number_of, read_manifest
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.rows import RowShape, Watch, read_columns, read_keys, read_rows, read_rows_once, take_rows
from hotrow.checkpoint.shard_part import WHOLE, ShardPart
from hotrow.errors import InputError
from hotrow.store.arrays import Integers, Keys
from hotrow.store.rows import Rows

Counters = NDArray[np.uint8]
FilesToRead = Callable[[Manifest], Iterable[str]]  # of a link, those whose checksums are compared
CHANGED = "was changed since it was saved: take another checkpoint"
COUNTS = ("key", "count")  # columns of a file of keys that wait for admission


@dataclass(frozen=True, slots=True)
class SavedLink:
    """One checkpoint of a chain, and the folder it is in."""

    place: Place
    manifest: Manifest
    digest: str

    @property
    def link(self) -> ChainLink:
        return ChainLink(self.manifest.number, self.digest, self.manifest.base)


class SavedCheckpoint:
    """The newest checkpoint of a folder, or the one with a number. Its files are checked when `verify` is called."""

    def __init__(self, name: str, chain: list[SavedLink]) -> None:
        """From links in order, the full one first; `open` finds them."""
        self.name = name
        self.chain = chain

    @classmethod
    def open(cls, where: str | Path | Place, number: int | None = None) -> Self:
        """InputError where there is none, or where a link of its chain is missing or another than it must be."""
        place, number = _parent(Place.of(where), number)
        folders = folders_in(place)
        numbers = numbers_in(place)
        if not numbers:
            raise InputError(f"checkpoint {place.name}: there is none in it: name a folder that Trainer.save wrote")
        found: dict[int, SavedLink] = {}

        def find(wanted: int) -> ChainLink | None:
            if wanted not in numbers:
                if wanted in folders:
                    message = f"{folder_of(wanted)} is incomplete, there is no {FILE} in it"
                    raise InputError(f"checkpoint {place.name}: {message}: take another one")
                return None
            folder = place.folder(folder_of(wanted))
            found[wanted] = SavedLink(folder, *read_manifest(folder))
            return found[wanted].link

        chain = chain_of(find, max(numbers) if number is None else number, place.name)
        return cls(place.name, [found[link.number] for link in chain])

    @property
    def manifest(self) -> Manifest:
        """Of the newest link."""
        return self.chain[-1].manifest

    @property
    def place(self) -> Place:
        """The folder of the newest link, which has the dense tensors."""
        return self.chain[-1].place

    @property
    def size(self) -> int:
        """Bytes of the files of all links."""
        return sum(link.manifest.size for link in self.chain)

    def table(self, name: str) -> SavedTableFacts:
        """The newest facts of a table."""
        if (found := self.manifest.tables.get(name)) is None:
            known = ", ".join(map(repr, sorted(self.manifest.tables)))
            raise InputError(f"checkpoint {self.name}: there is no table {name!r}: it has {known}")
        return found

    def shape(self, table: str) -> RowShape:
        """Of the rows of a table."""
        facts = self.table(table)
        return RowShape(facts.dim, facts.state_dim, facts.fields)

    def verify(self, watch: Watch = lambda _: None, read: FilesToRead = lambda manifest: manifest.files) -> None:
        """InputError names the first file that is missing, cut or changed. Reads everything, or the files of `read`."""
        for fault in self.faults(watch, read):
            raise InputError(fault)

    def faults(
        self, watch: Watch = lambda _: None, read: FilesToRead = lambda manifest: manifest.files
    ) -> Iterator[str]:
        """A sentence for every file that is missing, cut or changed. Reads everything, or the files of `read`."""
        for link in self.chain:
            who = f"checkpoint {link.place.name}"
            for table, file in link.manifest.unlisted():
                message = f"{FILE} names {file} for table {table!r} and has no checksum of it"
                yield f"{who}: {message}: take another checkpoint"
            there, to_read = link.place.files(), frozenset(read(link.manifest))
            for file, facts in link.manifest.files.items():
                if file not in there:
                    yield f"{who}: {file} is missing: take another checkpoint"
                elif there[file] != facts.bytes:
                    message = f"{file} has {there[file]:,} bytes and was saved with {facts.bytes:,}"
                    yield f"{who}: {message}: take another checkpoint"
                elif file in to_read and link.place.facts(file, watch) != facts:
                    yield f"{who}: {file} {CHANGED}"

    def dense(self) -> bytes:
        """The file of dense tensors; InputError where the checkpoint holds tables alone."""
        if not self.manifest.has_dense:
            raise InputError(f"checkpoint {self.name}: it holds tables alone, no dense tensors: take another one")
        return self.place.read(DENSE)

    def rows(self, table: str, part: ShardPart = WHOLE, *, check: Watch | None = None) -> Generator[Rows, None, None]:
        """All rows of a table, each key once, in chunks; of one that evicts, those that would go first come first.

        With `part` those of one shard. With `check`, which gets the bytes of each read, files are compared with their
        checksums as they are read: InputError after the last row of a file that was changed.
        """
        shape = self.shape(table)
        newest = self._newest(table, part)
        for place, link in enumerate(self.chain):
            if (facts := link.manifest.tables.get(table)) is None:
                continue
            for shard in part.saved(facts):
                for chunk in self._read(link, shard.rows, shape, check):
                    if part.is_whole_file(facts):
                        part.check_whole(f"checkpoint {link.place.name}: {shard.rows}", chunk.keys)
                    elif (mine := part.places(chunk.keys)) is not None:
                        chunk = take_rows(chunk, mine)
                    yield _current(chunk, place, *newest)

    def row(self, table: str, key: int) -> Rows | None:
        """One row, the newest; None where the table has no such key."""
        shape, wanted = self.shape(table), np.uint64(key % 2**64)
        for link in reversed(self.chain):
            if (facts := link.manifest.tables.get(table)) is None:
                return None
            for shard in facts.shards:
                for chunk in self._read(link, shard.rows, shape):
                    if len(at := np.flatnonzero(chunk.keys == wanted)):
                        return take_rows(chunk, at)
            if any((read_keys(link.place, shard.removed) == wanted).any() for shard in facts.shards if shard.removed):
                return None
        return None

    def waiting(self, table: str, part: ShardPart = WHOLE) -> Iterator[tuple[Keys, Integers]]:
        """Keys that wait for admission and how often each has come; with `part` those of one shard."""
        for shard in part.saved(self.table(table)):
            if shard.admission is None:
                continue
            for keys, counts in read_columns(self.place, shard.admission, COUNTS):
                mine = part.places(keys)
                yield (keys, counts) if mine is None else (keys[mine], counts[mine])

    def filters(self, table: str, part: ShardPart = WHOLE) -> list[Counters]:
        """The counters of each partition's counting Bloom filter; none where another number of shards saved them."""
        facts = self.table(table)
        (shard, *_) = part.saved(facts)
        if shard.filter is None or not part.is_whole_file(facts):
            return []
        return [counters for (counters,) in read_columns(self.place, shard.filter, ("counter",))]

    def _newest(self, table: str, part: ShardPart) -> tuple[Keys, NDArray[np.int32]]:
        """The keys that deltas changed or removed, sorted, and for each the place in the chain of the last that did."""
        keys, places = [np.empty(0, np.uint64)], [np.empty(0, np.int32)]
        for place, link in enumerate(self.chain[1:], 1):
            facts = link.manifest.tables.get(table)
            shards = () if facts is None else part.saved(facts)
            files = [file for shard in shards for file in (shard.rows, shard.removed) if file]
            found = [read_keys(link.place, file) for file in files]
            keys += found
            places += [np.full(len(each), place, np.int32) for each in found]
        every, of_every = np.concatenate(keys), np.concatenate(places)
        order = np.argsort(every, kind="stable")  # of equal keys the last is that of the newest link
        every, of_every = every[order], of_every[order]
        last = np.append(every[1:] != every[:-1], np.ones(min(len(every), 1), bool))
        return every[last], of_every[last]

    def _read(self, link: SavedLink, file: str, shape: RowShape, check: Watch | None = None) -> Iterator[Rows]:
        try:
            if check is None:
                yield from read_rows(link.place, file, shape)
            elif (yield from read_rows_once(link.place, file, shape, check)) != link.manifest.files[file]:
                raise InputError(f"checkpoint {link.place.name}: {file} {CHANGED}")
        except (pa.ArrowException, OSError, KeyError) as error:
            raise InputError(
                f"checkpoint {link.place.name}: {file} cannot be read: {error}: take another one"
            ) from None


def folders_in(place: Place) -> list[int]:
    """The numbers of the checkpoints of a folder, whole or not, by its folders' names."""
    return [number for name in place.folders() if (number := number_of(name)) is not None]


def numbers_in(place: Place) -> list[int]:
    """The numbers of the whole checkpoints of a folder."""
    return [number for number in folders_in(place) if place.folder(folder_of(number)).has(FILE)]


def exists(where: str | Path | Place) -> bool:
    """Whether there is a whole checkpoint in a folder."""
    return bool(numbers_in(Place.of(where)))


def _parent(place: Place, number: int | None) -> tuple[Place, int | None]:
    """The folder of all checkpoints, where that of one was named."""
    if number is None and place.has(FILE):
        if (own := number_of(place.path.rpartition("/")[2])) is not None:
            return place.parent, own
        read_manifest(place)  # of another version: its sentence says so
    return place, number


def _current(chunk: Rows, place: int, keys: Keys, places: NDArray[np.int32]) -> Rows:
    """The rows of the link at a place of the chain that no later one changed or removed."""
    if not len(keys):
        return chunk
    at = np.minimum(np.searchsorted(keys, chunk.keys), len(keys) - 1)
    return take_rows(chunk, np.flatnonzero((keys[at] != chunk.keys) | (places[at] == place)))
