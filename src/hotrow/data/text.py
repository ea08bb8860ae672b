"""Text files with columns (CSV, TSV and the like), block by block, plain or packed."""

import csv
import json
from collections.abc import Iterator

import pyarrow as pa

from hotrow.data.blocks import TextBlock, blocks
from hotrow.data.columns import Columns
from hotrow.data.files import File, Where, find_files
from hotrow.data.parser import Dialect, Parser
from hotrow.data.schema import Schema
from hotrow.data.source import LIMIT, Limit, Tally, Trouble, check_columns, skipped
from hotrow.errors import InputError

DELIMITERS = (";", "\t", "|", ",")  # that a file with one column too wide may be written with


class TextSource:
    """Rows of text files, one file after the other."""

    def __init__(
        self,
        where: Where,
        schema: Schema,
        dialect: Dialect | None = None,
        *,
        labels: bool = True,
        limit: Limit = LIMIT,
        trouble: Trouble | None = None,  # the account of malformed lines, where others share it
        columns: Columns | None = None,  # what to read, where it is not what the schema names
    ) -> None:
        self.schema = schema
        self.trouble = trouble or Trouble()
        self._files, self._dialect, self._limit = find_files(where), dialect or Dialect(), limit
        self._columns = columns or Columns.of(schema, labels)
        self._may_lack = frozenset() if labels else frozenset(label.column for label in schema.label)

    def rows(self) -> int | None:
        return None

    def files(self) -> tuple[File, ...]:
        return self._files

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        return skipped(self._read(), skip)

    def _read(self) -> Iterator[pa.RecordBatch]:
        tally = Tally(self.trouble, self._limit)
        for file in self._files:
            yield from read_text(file, self._dialect, self._columns, tally, self._may_lack)
        tally.end()


def read_text(
    file: File, dialect: Dialect, columns: Columns, tally: Tally, may_lack: frozenset[str] = frozenset()
) -> Iterator[pa.RecordBatch]:
    """The good rows of one file. `may_lack` names columns of the dialect that the file may be without."""
    parser: Parser | None = None
    for block in blocks(file):
        if parser is None:
            names = _names(block, dialect, may_lack)
            _check_names(columns, names, file.name, dialect)
            parser = Parser(file.name, names, columns, dialect)
            block = block.without_first() if dialect.header else block
        if block.data:
            parsed = parser.parse(block)
            last = block.first + block.size - 1
            tally.block(file.name, parsed.batch.num_rows, last, parsed.faults, parsed.blank)
            yield parsed.batch
    if parser is None and dialect.header:
        raise InputError(f"{file.name}: is empty: a first line with the names of its columns was expected")


def _check_names(columns: Columns, names: list[str], file: str, dialect: Dialect) -> None:
    """As check_columns; where a header looks split or decoded wrongly, the error names the setting to change."""
    try:
        check_columns(columns, names, file)
    except InputError as error:
        raise InputError(f"{error}{_dialect_hint(names, dialect)}") from None


def _dialect_hint(names: list[str], dialect: Dialect) -> str:
    if any("\N{REPLACEMENT CHARACTER}" in name for name in names):
        return f"; they are not {dialect.encoding} text: set data.encoding, as data.encoding = 'latin-1'"
    other = next((each for each in DELIMITERS if each != dialect.delimiter and each in names[0]), None)
    if len(names) > 1 or other is None:
        return ""
    return f"; the columns look separated by {other!r}: set data.delimiter = {json.dumps(other)}"


def read_table(file: File, dialect: Dialect, columns: Columns, trouble: Trouble, limit: Limit) -> pa.Table:
    """A whole file that fits in memory."""
    tally = Tally(trouble, limit)
    batches = list(read_text(file, dialect, columns, tally))
    tally.end()
    if not batches:
        raise InputError(f"{file.name}: holds no rows")
    return pa.Table.from_batches(batches).combine_chunks()


def header_of(file: File, dialect: Dialect) -> list[str]:
    """The names in a file's first line."""
    first = next(blocks(file), None)
    if first is None:
        raise InputError(f"{file.name}: is empty: a first line with the names of its columns was expected")
    return _names(first, dialect, frozenset())


def _names(block: TextBlock, dialect: Dialect, may_lack: frozenset[str]) -> list[str]:
    line = block.data.partition(b"\n")[0].rstrip(b"\r").decode(dialect.encoding, "replace")
    found = _cut(line, dialect)
    if dialect.columns is None:
        return [name.strip() for name in found]
    rest = [name for name in dialect.columns if name not in may_lack]
    return rest if len(found) == len(rest) else list(dialect.columns)


def _cut(line: str, dialect: Dialect) -> list[str]:
    if dialect.quote is None:
        return line.split(dialect.delimiter)
    try:
        return next(csv.reader([line], delimiter=dialect.delimiter, quotechar=dialect.quote), [""])
    except csv.Error:  # no header: the check of columns will report it
        return [line]
