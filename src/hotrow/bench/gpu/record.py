"""What a run has found so far: figures and failures of each part, written to a file after every one."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MESSAGE = 2_000  # characters of a failure


@dataclass(slots=True)
class Record:
    """Results of a run. A failure of one part leaves the figures of the others."""

    provenance: dict[str, Any]
    file: Path | None = None
    parts: dict[str, str] = field(default_factory=dict)  # "checked", "measured" or "failed: ..."
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def note(self, part: str, state: str) -> None:
        self.parts[part] = state
        self._write()

    def add(self, part: str, name: str, value: float) -> None:
        self.figures.setdefault(part, {})[name] = value
        self._write()

    def fail(self, part: str, error: Exception) -> None:
        self.note(part, f"failed: {type(error).__name__}: {str(error).strip()[:_MESSAGE]}")

    @property
    def failed(self) -> list[str]:
        """Names of the parts that failed."""
        return [part for part, state in self.parts.items() if state.startswith("failed")]

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0

    def text(self) -> str:
        """What a person reads: a line for each figure, and one for each part."""
        figures = (pair for part in self.figures.values() for pair in part.items())
        lines = [f"{name:40} {value:12,.3f}" for name, value in figures]
        return "\n".join(lines + [f"{part}: {state.partition(chr(10))[0]}" for part, state in self.parts.items()])

    def _write(self) -> None:
        if self.file is not None:
            document = {**self.provenance, "parts": self.parts, "figures": self.figures}
            self.file.write_text(json.dumps(document, indent=2) + "\n")
