"""Labels as numbers: a number as it is, 1 from a bound on, or 1 where a column holds one of the positive values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotrow.data.keys import check_dictionary
from hotrow.data.numbers import Floats, Mask, floats
from hotrow.data.schema import Label
from hotrow.errors import InputError
from hotrow.spec import did_you_mean

NUMERIC = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
BOOLEANS = {"true": 1.0, "false": 0.0}
VALUES_SHOWN = 5  # of a label column, in a message


def label_values(column: pa.Array, label: Label) -> tuple[Floats, Mask | None]:
    """Numbers with NaN where nothing is there, and which rows hold no number, if any."""
    if label.positive is not None:
        return _is_positive(column, label.column, label.positive), None
    values, bad = floats(column, label.column)
    if label.at_least is None:
        return values, bad
    return np.where(np.isnan(values), np.nan, values >= label.at_least), bad


class PositiveSearch:
    """Looks for a positive row of each label that has `positive`: without one, every label would be 0."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self._missing = [label for label in labels if label.positive is not None]
        self._seen: dict[str, dict[str, None]] = {label.column: {} for label in self._missing}  # the first values

    @property
    def complete(self) -> bool:
        return not self._missing

    def add(self, batch: pa.RecordBatch) -> None:
        """Search one more batch; its columns are those of the schema."""
        found = [label for label in self._missing if (label_values(batch[label.column], label)[0] == 1).any()]
        self._missing = [label for label in self._missing if label not in found]
        for label in self._missing:
            seen = self._seen[label.column]
            values = pc.unique(batch[label.column]).to_pylist() if len(seen) < VALUES_SHOWN else []
            seen |= dict.fromkeys(str(value).strip() for value in values if value is not None)

    def check(self, rows: int) -> None:
        """InputError where a label has found none in all `rows`."""
        for label in self._missing:
            assert label.positive is not None
            seen = [value for value in self._seen[label.column] if value]
            given = ", ".join(map(repr, label.positive))
            shown = ", ".join(map(repr, seen[:VALUES_SHOWN])) + (", ..." if len(seen) > VALUES_SHOWN else "")
            message = f"label.positive={given}: none of the {rows:,} rows has it{did_you_mean(label.positive[0], seen)}"
            raise InputError(f"{message}; column {label.column!r} holds {shown}: name one of these values")


def missing_labels(column: pa.Array, name: str) -> Mask:
    """Which rows of a column of label values hold none: null, or blanks."""
    if pa.types.is_dictionary(column.type):
        unknown: Mask = _by_dictionary(missing_labels(column.dictionary, name), column, name, missing=True)
        return unknown
    if pa.types.is_floating(column.type):
        return np.isnan(floats(column, name)[0])
    gone: Mask = pc.fill_null(pc.equal(_texts(column, name), ""), True).to_numpy(zero_copy_only=False)
    return gone


def _is_positive(column: pa.Array, name: str, positive: tuple[str, ...]) -> Floats:
    kind = column.type
    if pa.types.is_dictionary(kind):
        of_value = _is_positive(column.dictionary, name, positive)
        found: Floats = _by_dictionary(of_value, column, name, missing=np.nan)
        return found
    if any(is_kind(kind) for is_kind in NUMERIC):
        values, _ = floats(column, name)
        wanted = np.array([_number(each, name, kind) for each in positive], values.dtype)
        return np.where(np.isnan(values), np.nan, np.isin(values, wanted))
    marks: Mask = pc.is_in(_texts(column, name), value_set=pa.array(positive)).to_numpy(zero_copy_only=False)
    return np.where(missing_labels(column, name), np.nan, marks)


def _by_dictionary(of_value: Floats | Mask, column: pa.DictionaryArray, name: str, missing: float | bool) -> Any:
    """What is known of each value of a dictionary, row by row."""
    check_dictionary(column, name)
    places = column.indices.cast(pa.int64()).fill_null(len(of_value)).to_numpy(zero_copy_only=False)
    return np.append(of_value, missing).astype(of_value.dtype)[places]


def _number(text: str, name: str, kind: pa.DataType) -> float:
    try:
        return BOOLEANS[text] if text in BOOLEANS else float(text)
    except ValueError:
        message = f"label.positive={text!r}: column {name!r} is of {kind} and never holds it"
        raise InputError(f"{message}: name one of its values") from None


def _texts(column: pa.Array, name: str) -> pa.Array:
    try:
        texts = column.cast(pa.string(), safe=False)  # it may be no UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"column {name!r} is of {column.type}: a label must be a number, a boolean or a text"
        ) from None
    return pc.ascii_trim_whitespace(texts)
