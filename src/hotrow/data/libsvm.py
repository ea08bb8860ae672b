"""libsvm and libfm files ("1 3:1 7:1"), and libffm's ("1 0:3:1 1:7:1"): a label and the features that are there.

Column "features" holds their indices, as one bag of ids.

A feature is there or it is not: a batch carries no weights, so a value other than 1 makes a line malformed. Of libffm's
triples the middle one, the feature, is the id; a field's number adds nothing to it, because features are numbered over
all fields.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hotrow.data.blocks import TextBlock, blocks
from hotrow.data.columns import RowFault
from hotrow.data.files import File, Where, find_files
from hotrow.data.numbers import numbers
from hotrow.data.schema import Ids, Schema
from hotrow.data.source import LIMIT, Limit, Malformed, Tally, Trouble, short, skipped
from hotrow.data.wrong_type import WrongType

LABEL, FEATURES = "label", "features"
SCHEMA = Schema(label=LABEL, ids=(Ids(column=FEATURES, several=True),))

INDEX_END = 10**18

_PAIR = r"^(?:[0-9]+:)?(?P<index>[0-9]{1,18}):[+]?1(?:\.0*)?$"
_WRONG_PAIR = "must be index:1 or field:index:1: a batch has no place for other values"


class LibsvmSource:
    """Lines of libsvm, libfm or libffm files, one file after the other."""

    def __init__(
        self,
        where: Where,
        schema: Schema = SCHEMA,
        *,
        labels: bool = True,
        limit: Limit = LIMIT,
        trouble: Trouble | None = None,
    ) -> None:
        self.schema = schema
        self.trouble = trouble or Trouble()
        self._files, self._labels, self._limit = find_files(where), labels, limit

    def rows(self) -> int | None:
        return None

    def files(self) -> tuple[File, ...]:
        return self._files

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        return skipped(self._read(), skip)

    def _read(self) -> Iterator[pa.RecordBatch]:
        tally = Tally(self.trouble, self._limit)
        for file in self._files:
            for block in blocks(file):
                batch, faults, blank = self._parsed(file, block)
                tally.block(file.name, batch.num_rows, block.first + block.size - 1, faults, blank)
                yield batch
        tally.end()

    def _parsed(self, file: File, block: TextBlock) -> tuple[pa.RecordBatch, list[Malformed], list[int]]:
        texts = [line.partition(b"#")[0].strip().decode("utf-8", "replace") for line in block.lines()]
        blank = [number for number, text in enumerate(texts, block.first) if not text]
        lines = [(number, text) for number, text in enumerate(texts, block.first) if text]
        labels, pairs, bounds = _cut([text for _, text in lines], self._labels)
        indices = _indices(pairs)
        column, faults = self._checked_labels(labels)
        for place in np.flatnonzero(indices.is_null().to_numpy(zero_copy_only=False)).tolist():
            row = int(np.searchsorted(bounds, place, side="right")) - 1
            faults.setdefault(row, RowFault(f"{pairs[place].as_py()!r} {_WRONG_PAIR}"))
        bags = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), indices)
        batch = pa.RecordBatch.from_arrays([column, bags], names=[LABEL, FEATURES])
        kept = np.ones(len(lines), bool)
        kept[list(faults)] = False
        malformed = [
            Malformed(file.name, lines[row][0], reason, short(lines[row][1]), text)
            for row, (reason, text) in sorted(faults.items())
        ]
        return batch.filter(pa.array(kept)), malformed, blank

    def _checked_labels(self, labels: pa.Array) -> tuple[pa.Array, dict[int, RowFault]]:
        """The labels as numbers, or as texts for labels with `positive`; row -> fault."""
        if any(label.positive is not None for label in self.schema.label):
            pairs = np.flatnonzero(pc.match_substring(labels, ":").to_numpy(zero_copy_only=False)).tolist()
            return labels, dict.fromkeys(pairs, RowFault("the label is missing"))
        found, bad = numbers(labels, LABEL)
        none = np.isnan(found) if bad is None else np.isnan(found) | bad
        rows = np.flatnonzero(none).tolist() if self._labels else []
        faults = {
            row: RowFault("the label is no number", WrongType("label", LABEL, labels[row].as_py())) for row in rows
        }
        return pa.array(found), faults


def _indices(pairs: pa.Array) -> pa.Array:
    """The index of each pair as int64, null where it is no pair with the value 1."""
    if pc.all(pc.ends_with(pairs, ":1")).as_py():  # nearly always: then most of the work is saved
        try:
            found = pc.utf8_slice_codeunits(pairs, 0, -2).cast(pa.int64())
        except pa.ArrowInvalid:  # triples, or no numbers
            found = pa.array([-1])
        span = pc.min_max(found)
        if not len(found) or (span["min"].as_py() >= 0 and span["max"].as_py() < INDEX_END):
            return found
    return pc.struct_field(pc.extract_regex(pairs, pattern=_PAIR), "index").cast(pa.int64())


def _cut(lines: list[str], labels: bool) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """The label of each line as a text, all pairs, and where the pairs of each line begin."""
    if not labels:  # then the first field may be a pair already
        lines = [line if ":" not in line.split(None, 1)[0] else f"nan {line}" for line in lines]
    words = pc.utf8_split_whitespace(pa.array(lines, pa.string()))
    lengths = pc.list_value_length(words).to_numpy(zero_copy_only=False)
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    first = words.flatten().take(pa.array(bounds[:-1]))
    is_pair = np.ones(bounds[-1], bool)
    is_pair[bounds[:-1]] = False
    return first, words.flatten().filter(pa.array(is_pair)), bounds - np.arange(len(bounds))
