"""Reading a run folder as it lies there, finished or not. What is missing or damaged becomes a sentence."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from hotrow.obs.events import FILE as EVENTS
from hotrow.obs.events import Events, read_events
from hotrow.obs.report.run import RunRecord, tell

Record: TypeAlias = dict[str, Any]

CONFIG, MACHINE, EVALUATION, TABLES = "config.toml", "machine.json", "evaluation.json", "tables.json"


@dataclass(frozen=True, slots=True)
class ReportInputs:
    """The parts of a run folder that the page shows; a missing one is empty and has a sentence in `missing`."""

    name: str
    run: RunRecord
    config: str
    machine: Record
    evaluation: Record
    tables: Record
    missing: dict[str, str]


def read_folder(folder: Path) -> ReportInputs:
    """Read everything; never fails because of what lies in the folder."""
    missing: dict[str, str] = {}
    run = tell(_events(folder / EVENTS, missing))
    return ReportInputs(
        name=run.name or folder.resolve().name,
        run=run,
        config=_text(folder / CONFIG, missing) or "",
        machine=_record(folder / MACHINE, missing),
        evaluation=_record(folder / EVALUATION, missing),
        tables=_record(folder / TABLES, missing),
        missing=missing,
    )


def _events(path: Path, missing: dict[str, str]) -> Events:
    try:
        return read_events(path)
    except OSError as error:
        missing[path.name] = _absent(path, error)
        return Events([], 0)


def _text(path: Path, missing: dict[str, str]) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        missing[path.name] = _absent(path, error)
        return None


def _record(path: Path, missing: dict[str, str]) -> Record:
    text = _text(path, missing)
    if text is None:
        return {}
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        missing[path.name] = f"{path.name} is damaged and could not be read ({error})."
        return {}
    if not isinstance(value, dict):
        missing[path.name] = f"{path.name} holds no JSON object."
        return {}
    return value


def _absent(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path.name} is not in the run folder."
    return f"{path.name} could not be read ({error.strerror})."
