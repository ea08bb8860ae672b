"""Rows that a trainer found in the segments of its tables, and what happened to them, as a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of an earlier process."""

    rows: Mapping[str, int]  # by table
    samples: int  # at their last update, rounded down to a tick; 0: unknown
    replaced_at: int | None = None  # samples of the checkpoint that was loaded in their place; None: they are used

    def __str__(self) -> str:
        held = ", ".join(f"{count:,} rows of table {name!r}" for name, count in self.rows.items())
        trained = f", trained up to about {self.samples:,} samples" if self.samples else ""
        if self.replaced_at is None:
            return f"training starts with {held} that segments of an earlier run held{trained}; the network starts anew"
        message = f"the checkpoint of {self.replaced_at:,} samples took the place of {held} in segments{trained}"
        again = self.samples - self.replaced_at
        return f"{message}: about {again:,} samples are trained again" if again > 0 else message
