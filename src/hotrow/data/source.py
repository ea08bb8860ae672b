"""Where samples come from: what a source must offer, the account of malformed lines, and sources of Arrow batches.

A source gives raw columns block by block, in a fixed order, and only rows that can be used: what cannot is left out,
counted, and refused above a limit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from hotrow.data.columns import Columns, checked
from hotrow.data.schema import Schema
from hotrow.data.shown import shown
from hotrow.data.wrong_type import WrongType, WrongTypes
from hotrow.errors import InputError
from hotrow.sizes import number_text
from hotrow.spec import did_you_mean

Limit: TypeAlias = float | int  # malformed lines: a fraction of the rows so far, or a count
Batches: TypeAlias = Iterable[pa.RecordBatch | pa.Table]

LIMIT = 0.01
KEPT = 20  # malformed lines that are kept to be shown
TOLD = 3  # of them in an error
FEWEST = 1000  # rows that a fraction is taken of at least: the first lines of a file decide nothing
NOT_TEXT = "text"  # how the reason of a line ends that is not in the encoding of its file: "is no utf-8 text"
TEXT_MAX = 200  # characters of a malformed line that are kept


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line (or row of a file without lines, from 1) that was left out."""

    file: str
    line: int
    reason: str
    text: str
    wrong_type: WrongType | None = field(default=None, compare=False, repr=False)  # RowFault's

    def __str__(self) -> str:
        return f"{self.file} line {self.line}: {self.reason} ({self.text!r})"


Watch: TypeAlias = Callable[[int, Sequence[Malformed], Sequence[int]], None]  # (last line, faults, empty lines)


@dataclass(slots=True)
class FileTrouble:
    """The malformed and empty lines of a file, as far as it was looked at."""

    up_to: int = 0  # line
    malformed: int = 0
    blank: int = 0


@dataclass(slots=True)
class Trouble:
    """All malformed lines of one or several sources: each once, however often they are read."""

    first: list[Malformed] = field(default_factory=list)
    watch: Watch | None = None  # called for every block, also when it is read again
    files: dict[str, FileTrouble] = field(default_factory=dict)  # by name
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)  # several threads may read

    @property
    def malformed(self) -> int:
        """Malformed lines."""
        return sum(file.malformed for file in list(self.files.values()))  # a reading thread may add one

    @property
    def blank(self) -> int:
        """Empty lines: skipped, no fault."""
        return sum(file.blank for file in list(self.files.values()))

    def note(self, file: str, up_to: int, faults: Sequence[Malformed], blank: Sequence[int] = ()) -> None:
        """What the lines of `file` up to a number hold, as far as it is new: lines come in rising order."""
        if self.watch is not None:
            self.watch(up_to, faults, blank)
        with self._lock:
            known = self.files.setdefault(file, FileTrouble())
            new = [fault for fault in faults if fault.line > known.up_to]
            known.malformed += len(new)
            known.blank += sum(line > known.up_to for line in blank)
            self.first += new[: KEPT - len(self.first)]
            known.up_to = max(known.up_to, up_to)

    def merge(self, files: Mapping[str, FileTrouble], first: Sequence[Malformed]) -> None:
        """Take over what another reader of the same files has met, as far as it is new."""
        with self._lock:
            for name, file in files.items():
                if name not in self.files or file.up_to > self.files[name].up_to:
                    self.files[name] = file
            known = {(each.file, each.line) for each in self.first}  # others may show other columns of a row
            self.first += [each for each in first if (each.file, each.line) not in known][: KEPT - len(self.first)]

    def __getstate__(self) -> tuple[list[Malformed], Watch | None, dict[str, FileTrouble]]:
        with self._lock:
            return list(self.first), self.watch, dict(self.files)

    def __setstate__(self, state: tuple[list[Malformed], Watch | None, dict[str, FileTrouble]]) -> None:
        self.first, self.watch, self.files = state
        self._lock = Lock()


class Tally:
    """One reading of a source, held to the limit."""

    def __init__(self, trouble: Trouble, limit: Limit) -> None:
        self._trouble, self._limit = trouble, limit
        self._rows = self._malformed = 0
        self._first: list[Malformed] = []
        self._wrong = WrongTypes()

    def block(self, file: str, rows: int, up_to: int, faults: Sequence[Malformed], blank: Sequence[int] = ()) -> None:
        """Rows and faults of a block that ends with line `up_to`; InputError once there are too many."""
        self._trouble.note(file, up_to, faults, blank)
        self._rows += rows + len(faults)
        self._malformed += len(faults)
        self._first += faults[: TOLD - len(self._first)]
        for wrong in (fault.wrong_type for fault in faults if fault.wrong_type is not None):
            self._wrong.add(wrong)
        whole = isinstance(self._limit, int)
        if self._malformed > (self._limit if whole else self._limit * max(self._rows, FEWEST)):
            allowed = f"{number_text(self._limit)} {'lines' if whole else 'of the rows'}"
            self._refuse(f"the first {self._rows:,}", f"the limit is {allowed}")

    def end(self) -> None:
        """The end of the data; InputError where not a single row could be used, whatever the limit."""
        if self._malformed and self._malformed == self._rows:
            self._refuse(f"{self._rows:,}", "nothing else was found")

    def _refuse(self, lines: str, why: str) -> None:
        """Where one setting explains the malformed lines, it comes first, and one line is an example."""
        message = f"{self._malformed:,} of {lines} lines are malformed, {why}"
        if (remedy := self._wrong.remedy(self._malformed, self._rows)) is not None:
            example = next((fault for fault in self._first if fault.wrong_type is not None), self._first[0])
            raise InputError(f"{remedy}; {message}, as {example.file} line {example.line}")
        higher = "" if self._malformed == self._rows else ", or raise data.malformed"
        remedy = self._encoding_hint() or f"mend the data or its description{higher}"
        raise InputError(f"{message}: {'; '.join(map(str, self._first))}; {remedy}")

    def _encoding_hint(self) -> str | None:
        """The remedy where every line in the message failed to decode."""
        if self._first and all(fault.reason.endswith(NOT_TEXT) for fault in self._first):
            return "set data.encoding to the encoding of the file, as data.encoding = 'latin-1'"
        return None


class Source(Protocol):
    """Interface of a source: rows in a fixed order that can be read any number of times.

    Example:
        >>> import pyarrow as pa
        >>> from hotrow.data import ArrowSource, Schema
        >>> schema = Schema(label="clicked", ids=["user"])
        >>> source = ArrowSource(pa.table({"clicked": [1, 0, 1], "user": ["a", "b", "a"]}), schema)
        >>> sum(batch.num_rows for batch in source.read(skip=1))
        2
    """

    @property
    def schema(self) -> Schema: ...

    @property
    def trouble(self) -> Trouble: ...

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """The schema's columns from row `skip` on (rows that were left out do not count), never an empty batch."""
        ...

    def rows(self) -> int | None:
        """How many there are, where that is known without reading them; malformed ones are among them."""
        ...


class ArrowSource:
    """Reads record batches or tables of Arrow.

    `batches` is called for each reading; it may also be a list or table. An iterator can be read once.

    Example:
        >>> import pyarrow as pa
        >>> from hotrow.data import ArrowSource, Schema
        >>> schema = Schema(label="clicked", ids=["user"])
        >>> source = ArrowSource(pa.table({"clicked": [1, 0, 1], "user": ["a", "b", "a"]}), schema)
        >>> [batch.num_rows for batch in source.read()]
        [3]
    """

    def __init__(
        self,
        batches: Callable[[], Batches] | Batches,
        schema: Schema,
        *,
        labels: bool = True,
        limit: Limit = LIMIT,
        trouble: Trouble | None = None,
        rows: int | None = None,
        name: str = "batches",
    ) -> None:
        self.schema = schema
        self.trouble = trouble or Trouble()
        self._batches = [batches] if isinstance(batches, pa.Table | pa.RecordBatch) else batches
        self._columns = Columns.of(schema, labels)
        self._limit, self._rows, self._name = limit, rows, name
        self._used: Any = None  # the iterator of the last reading

    def rows(self) -> int | None:
        return self._rows

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        return skipped(self._read(), skip)

    def _read(self) -> Iterator[pa.RecordBatch]:
        tally, first = Tally(self.trouble, self._limit), 1
        for batch in self._raw():
            good, faults = checked(picked(batch, self._columns, self._name), self._columns)
            malformed = [
                Malformed(self._name, first + row, why, row_text(batch, row), text)
                for row, (why, text) in faults.items()
            ]
            first += batch.num_rows
            tally.block(self._name, good.num_rows, first - 1, malformed)
            yield good
        tally.end()

    def _raw(self) -> Iterator[pa.RecordBatch]:
        given = self._batches() if callable(self._batches) else self._batches
        if isinstance(given, Iterator):
            if given is self._used:
                remedy = "give a function that makes a new one each time, or a list"
                raise InputError(f"{self._name}: this iterator was read before and cannot be read again: {remedy}")
            self._used = given
        for each in given:
            yield from each.to_batches() if isinstance(each, pa.Table) else [each]


def skipped(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """What comes after the first `skip` rows; empty batches are left out."""
    for batch in batches:
        rest = batch.slice(skip)
        skip = max(0, skip - batch.num_rows)
        if rest.num_rows:
            yield rest


def picked(batch: pa.RecordBatch, columns: Columns, where: str) -> pa.RecordBatch:
    """The columns that are needed."""
    check_columns(columns, batch.schema.names, where)
    return batch.select(list(columns.names))


def check_columns(columns: Columns, there: Sequence[str], where: str) -> None:
    """InputError with the existing columns, where one is missing or occurs twice."""
    for name in columns.names:
        if there.count(name) != 1:
            named = f"label column {name!r}" if name in columns.labels | columns.label_texts else f"column {name!r}"
            fault = f"there is no {named}{did_you_mean(name, there)}" if name not in there else f"{named} occurs twice"
            raise InputError(f"{where}: {fault}; its columns are {', '.join(map(repr, there))}")


def row_text(batch: pa.RecordBatch, row: int) -> str:
    """A row of a batch to be shown."""
    return short(", ".join(f"{name}={shown(batch[name][row])!r}" for name in batch.schema.names))


def short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
