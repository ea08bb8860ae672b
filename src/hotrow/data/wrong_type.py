"""Columns whose values have another type than their setting says: counted, and the setting that mends it."""

from collections import Counter
from collections.abc import Iterable
from json import dumps
from typing import Literal, NamedTuple, TypeAlias

Purpose: TypeAlias = Literal["label", "number", "time", "weight"]

VALUES_TOLD = 5  # distinct values of a label column
EXAMPLES = 2  # of another column


class WrongType(NamedTuple):
    """A value of a column that cannot be read as what the column is for."""

    purpose: Purpose
    column: str
    value: str


class WrongTypes:
    """All of them in one reading of a source."""

    def __init__(self) -> None:
        self._values: dict[tuple[Purpose, str], dict[str, None]] = {}  # the first ones
        self._count: Counter[tuple[Purpose, str]] = Counter()

    def add(self, wrong: WrongType) -> None:
        """One more value."""
        column = wrong.purpose, wrong.column
        self._count[column] += 1
        values = self._values.setdefault(column, {})
        if len(values) < VALUES_TOLD:
            values[wrong.value] = None

    def remedy(self, malformed: int, rows: int) -> str | None:
        """The setting to change; None where lines are malformed for other reasons.

        A text as a label is a mistake in the config wherever it occurs. Any other column is one only where it makes
        more than half of the malformed lines and no line can be read.
        """
        for (purpose, name), count in self._count.most_common():
            if purpose == "label" or (malformed == rows and 2 * count > malformed):
                return _REMEDIES[purpose](name, sorted(self._values[purpose, name]))
        return None


def _label(name: str, values: list[str]) -> str:
    setting = f"label = {{ column = {dumps(name)}, positive = {dumps(values[-1], ensure_ascii=False)} }}"
    return f"label column {name!r} holds text ({_listed(values)}): name the positive value, as {setting}"


def _number(name: str, values: list[str]) -> str:
    message = f"number column {name!r} holds text ({_listed(values[:EXAMPLES])})"
    return f"{message}: name it in data.ids, or take it out of data.numbers"


def _time(name: str, values: list[str]) -> str:
    setting = f'time = {{ column = {dumps(name)}, format = "%d/%m/%Y %H:%M" }}'
    return f"time column {name!r} has another format ({_listed(values[:EXAMPLES])}): set it, as {setting}"


def _weight(name: str, values: list[str]) -> str:
    return f"weight column {name!r} holds text ({_listed(values[:EXAMPLES])}): name a column of numbers as data.weight"


def _listed(values: Iterable[str]) -> str:
    return ", ".join(map(repr, values))


_REMEDIES = {"label": _label, "number": _number, "time": _time, "weight": _weight}
