"""The event log of a run: one JSON object a line, appended line by line, so that a kill loses at most one.

Numbers that JSON does not know (NaN, infinity) become null, and the event names their fields in `nonfinite`.
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotrow.disk import cannot_write, written
from hotrow.errors import FileError, InputError

FILE = "events.jsonl"
OWN_FIELDS = ("time", "kind", "nonfinite")


@dataclass(frozen=True, slots=True)
class Events:
    """What a log holds, in order, and how many of its lines are no event."""

    events: list[dict[str, Any]]
    unreadable: int


class EventLog:
    """Appends to `events.jsonl` in a run folder. Safe from several threads at once.

    A line that the file system does not take is left out whole, and training goes on: `fault` says why, and the next
    line that is taken is a warning with the number of those that are missing.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = folder / FILE
        self.fault: FileError | None = None  # the last one
        self._lost = 0  # events since the last one that was taken
        self._clock = clock
        self._lock = threading.Lock()
        with written(self.path, "the event log"):
            folder.mkdir(parents=True, exist_ok=True)
            cut = _ends_inside_a_line(self.path)
            self._file = self.path.open("ab", buffering=0)  # what a buffer held back would be tried again at the end
            if cut:  # what a killed run left must not swallow our first event
                self._file.write(b"\n")

    def write(self, kind: str, **fields: Any) -> None:
        """Add an event."""
        for name in OWN_FIELDS:
            if name in fields:
                raise InputError(f"event {kind!r}: the field {name!r} is the log's own; take another name")
        line = self._line(kind, fields)
        with self._lock:
            if self._lost:
                message = f"{self._lost:,} events before this one are missing: {self.fault}"
                line = self._line("warning", {"text": message}) + line
            try:
                self._append(line)
                self._lost = 0
            except OSError as error:
                self._lost += 1
                self.fault = cannot_write(self.path, "an event", len(line), error)

    def close(self) -> None:
        self._file.close()

    def _line(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        nonfinite: list[str] = []
        plain = {name: _plain(value, name, nonfinite) for name, value in fields.items()}
        event = {"time": self._clock(), "kind": kind, **plain}
        if nonfinite:
            event["nonfinite"] = nonfinite
        return (json.dumps(event, allow_nan=False) + "\n").encode()

    def _append(self, line: bytes) -> None:
        """All of it, or nothing."""
        end = self._file.seek(0, os.SEEK_END)
        taken = 0
        try:
            while taken < len(line):  # a full disk takes a part first, and says no at the next call
                taken += self._file.write(line[taken:])
        except OSError:
            self._file.truncate(end)
            raise


def read_events(path: Path) -> Events:
    """All events of a log. A line that is cut, or no event, is counted."""
    events, unreadable = [], 0
    with path.open("rb") as file:
        for line in file:
            event = _event(line)
            if event is not None:
                events.append(event)
            elif line.strip():
                unreadable += 1
    return Events(events, unreadable)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested beyond reason
        return None
    known = isinstance(value, dict) and isinstance(value.get("kind"), str)
    return value if known and isinstance(value.get("time"), int | float) else None


def _plain(value: Any, place: str, nonfinite: list[str]) -> Any:
    """A value as JSON holds it; the places of numbers that it cannot hold are added to `nonfinite`."""
    if hasattr(value, "tolist"):  # numpy and torch
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        nonfinite.append(place)
        return None
    if isinstance(value, Mapping):
        return {str(name): _plain(part, f"{place}.{name}", nonfinite) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, f"{place}.{number}", nonfinite) for number, part in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"event field {place}={value!r}: give a number, a text, a list or a dict of these")


def _ends_inside_a_line(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"
