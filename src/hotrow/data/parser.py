"""Blocks of text to columns, and the lines that are malformed.

A block is parsed at once by Arrow. Only a block with errors is read line by line, to find which line
it is: the wrong number of columns, no number where one must be, bytes that are no text, a quote that does not end.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

import pyarrow as pa
from pyarrow import csv as arrow_csv

from hotrow.data.blocks import TextBlock, check_encoding
from hotrow.data.columns import Columns, RowFault, checked
from hotrow.data.source import NOT_TEXT, Malformed, short
from hotrow.data.wrong_type import WrongType
from hotrow.errors import ConfigError

BETWEEN = "\x1f"  # replaces a delimiter of several characters: the ASCII unit separator


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text file writes its columns."""

    delimiter: str = ","
    quote: str | None = '"'  # quoted values may hold delimiters and doubled quotes, but end on their line
    header: bool = True  # the first line holds names
    columns: tuple[str, ...] | None = None  # the names, in place of the header's
    missing: tuple[str, ...] = ("",)  # texts that mean that nothing is there
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if len(self.delimiter) > 1 and self.quote is not None:
            raise ConfigError(
                f"delimiter={self.delimiter!r}: one of several characters goes with no quote: set quote=''"
            )
        if self.columns is None and not self.header:
            raise ConfigError("header=false: leaves the columns without names: give columns")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a block holds."""

    batch: pa.RecordBatch  # of the good rows
    faults: Sequence[Malformed] = ()
    blank: Sequence[int] = ()  # numbers of empty lines


class Parser:
    """Blocks of one file to columns."""

    def __init__(self, file: str, names: list[str], columns: Columns, dialect: Dialect) -> None:
        self._file, self._columns, self._dialect = file, columns, dialect
        self._places = [str(place) for place in range(len(names))]  # real names may be odd, or occur twice
        self._wanted = [str(names.index(name)) for name in columns.names]
        self._numeric = [str(names.index(name)) for name in columns.numeric]
        self._as_is = dialect.encoding.lower().replace("_", "-") in ("utf-8", "utf8") and len(dialect.delimiter) == 1

    def parse(self, block: TextBlock) -> Parsed:
        try:
            batch, wrong = self._at_once(block.data)
        except (pa.ArrowInvalid, UnicodeError):
            return self._line_by_line(block)
        if block.stray or batch.num_rows + len(wrong) != block.size or self._is_open(block.last()):
            return self._line_by_line(block)
        good, faults = checked(batch, self._columns)
        if not wrong and not faults:
            return Parsed(good)
        lines = list(enumerate(block.lines(), block.first))
        return Parsed(good, self._malformed_lines(lines, wrong, faults))

    def _at_once(self, data: bytes) -> tuple[pa.RecordBatch, dict[int, str]]:
        """A whole block. Rows with too many or too few columns are skipped only where the block is text throughout:

        Arrow decodes a row to report it, and prints what cannot be decoded to standard error.
        """
        try:
            return self._arrow(data, typed=True, skips=False)
        except pa.ArrowInvalid:
            data.decode(self._dialect.encoding)
            return self._arrow(data, typed=True)

    def _line_by_line(self, block: TextBlock) -> Parsed:
        lines = list(enumerate(block.lines(), block.first))
        blank = [number for number, line in lines if not line.rstrip(b"\r")]
        lines = [each for each in lines if each[1].rstrip(b"\r")]
        lines, unreadable = self._without(
            lines, map(self._is_text, lines), f"is no {self._dialect.encoding} {NOT_TEXT}"
        )
        lines, broken = self._without(lines, map(_is_whole, lines), "a carriage return is within the line")
        malformed = [*unreadable, *broken]
        if (parsed := self._apart(lines)) is None:
            closed = [not self._is_open(line) for _, line in lines]
            lines, still_open = self._without(lines, closed, "a quoted value does not end on its line")
            malformed += still_open
            parsed = self._apart(lines)
        assert parsed is not None, f"{self._file} line {block.first}: rows and lines differ"
        batch, wrong = parsed
        good, faults = checked(batch, self._columns)
        malformed += self._malformed_lines(lines, wrong, faults)
        return Parsed(good, sorted(malformed, key=lambda fault: fault.line), blank)

    def _apart(self, lines: list[tuple[int, bytes]]) -> tuple[pa.RecordBatch, dict[int, str]] | None:
        """The lines parsed, all columns as texts; None where Arrow does not see as many lines as there are."""
        if not lines:
            empty = [pa.array([], pa.string())] * len(self._columns.names)
            return pa.RecordBatch.from_arrays(empty, names=list(self._columns.names)), {}
        try:
            batch, wrong = self._arrow(b"".join(line + b"\n" for _, line in lines), typed=False)
        except pa.ArrowInvalid:
            return None
        told_apart = batch.num_rows + len(wrong) == len(lines) and not self._is_open(lines[-1][1])
        return (batch, wrong) if told_apart else None

    def _arrow(self, data: bytes, *, typed: bool, skips: bool = True) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Rows with the right number of columns; the others by their place among the lines, with the reason.

        Without `skips` one of the others is an ArrowInvalid.
        """
        wrong: dict[int, str] = {}

        def skip(row: arrow_csv.InvalidRow) -> str:
            wrong[row.number - 1] = f"{row.actual_columns} columns instead of {row.expected_columns}"
            return "skip"

        data = data if self._as_is else self._converted(data)
        quote = self._dialect.quote or False
        kinds = dict.fromkeys(self._wanted, pa.string())
        kinds |= dict.fromkeys(self._numeric, pa.float64()) if typed else {}
        table = arrow_csv.read_csv(
            pa.py_buffer(data),
            arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._places),
            arrow_csv.ParseOptions(
                delimiter=self._delimiter, quote_char=quote, invalid_row_handler=skip if skips else None
            ),
            arrow_csv.ConvertOptions(
                column_types=kinds,
                include_columns=self._wanted,
                null_values=list(self._dialect.missing),
                strings_can_be_null=True,
            ),
        )
        columns = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, names=list(self._columns.names)), wrong

    @property
    def _delimiter(self) -> str:
        return self._dialect.delimiter if len(self._dialect.delimiter) == 1 else BETWEEN

    def _converted(self, data: bytes) -> bytes:
        return data.decode(self._dialect.encoding).replace(self._dialect.delimiter, self._delimiter).encode()

    def _without(
        self, lines: list[tuple[int, bytes]], good: Iterable[bool], reason: str
    ) -> tuple[list[tuple[int, bytes]], list[Malformed]]:
        marks = list(good)
        bad = compress(lines, (not mark for mark in marks))
        return list(compress(lines, marks)), [self._malformed(each, reason) for each in bad]

    def _is_text(self, line: tuple[int, bytes]) -> bool:
        try:
            line[1].decode(self._dialect.encoding)
        except UnicodeDecodeError:
            return False
        return True

    def _is_open(self, line: bytes) -> bool:
        """Whether a quoted value does not end on its line: then a reader takes the next line as a part of it."""
        quote = self._dialect.quote
        if quote is None or quote.encode() not in line:
            return False
        text = line.rstrip(b"\r").decode(self._dialect.encoding)
        return len(list(csv.reader([text, "next"], delimiter=self._dialect.delimiter, quotechar=quote))) == 1

    def _malformed_lines(
        self, lines: list[tuple[int, bytes]], wrong: dict[int, str], faults: dict[int, RowFault]
    ) -> list[Malformed]:
        """Faults of the parser by their line, and those of values by their row, which the former do not count in."""
        rows = [line for place, line in enumerate(lines) if place not in wrong] if faults else []
        found = [self._malformed(lines[place], reason) for place, reason in wrong.items()]
        found += [self._malformed(rows[row], *fault) for row, fault in faults.items()]
        return sorted(found, key=lambda fault: fault.line)

    def _malformed(self, line: tuple[int, bytes], reason: str, wrong: WrongType | None = None) -> Malformed:
        text = line[1].rstrip(b"\r").decode(self._dialect.encoding, "replace")
        return Malformed(self._file, line[0], reason, short(text), wrong)


def _is_whole(line: tuple[int, bytes]) -> bool:
    return b"\r" not in line[1].removesuffix(b"\r")
