"""The settings of automatic switching, and the modes that it chooses between."""

from typing import Literal

from pydantic import Field

from hotrow.modes import GBA, Mode, Sync
from hotrow.sizes import Whole
from hotrow.spec import Spec
from hotrow.switching.prediction import ModeName


class Auto(Spec):
    """Switches between Sync and GBA to the mode that is predicted to be faster.

    Example:
        >>> import hotrow as hr
        >>> hr.Auto(gain=0.1).mode("gba").name
        'gba'
    """

    name: Literal["auto"] = "auto"
    tolerance: Whole = Field(default=4, ge=0, le=2**31)  # of the GBA it switches to
    advise: bool = False  # only report what would be done
    gain: float = Field(default=0.05, ge=0, le=100)  # a switch needs more speed than this, relative to the present mode
    minimum_stay: float = Field(default=60.0, ge=0)  # seconds of run time between two switches, or two pieces of advice
    window: Whole = Field(default=20, ge=1, le=10_000)  # batches remembered of each worker

    def mode(self, name: ModeName) -> Mode:
        """By name, with these settings."""
        return Sync() if name == "sync" else GBA(tolerance=self.tolerance)
