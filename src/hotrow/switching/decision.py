"""What the controller answers: a mode, whether to go there, and a sentence with the numbers."""

from dataclasses import dataclass

from hotrow.switching.prediction import ModeName, Prediction

TITLES: dict[ModeName, str] = {"sync": "Sync", "gba": "GBA"}


@dataclass(frozen=True, slots=True)
class Decision:
    """What is right now, and why."""

    mode: ModeName  # the one to be in; another one than now is a switch, or advice
    switch: bool  # whether to act on it
    sentence: str
    prediction: Prediction | None = None  # None: too little is known

    @property
    def predicted(self) -> dict[ModeName, float]:
        """Samples per second of both modes; empty where too little is known."""
        return {} if self.prediction is None else self.prediction.samples_per_s

    @property
    def spread(self) -> float | None:
        return None if self.prediction is None else self.prediction.spread

    @property
    def idle_share(self) -> float | None:
        return None if self.prediction is None else self.prediction.idle_share


def compared(prediction: Prediction, first: ModeName, second: ModeName) -> str:
    """Both modes with their speeds, and how far the first is ahead."""
    ours, theirs = prediction.samples_per_s[first], prediction.samples_per_s[second]
    rates = f"{_rate(ours)} samples/s predicted, {TITLES[second]} {_rate(theirs)}"
    return f"{TITLES[first]}: {rates} ({100 * (ours / theirs - 1):+z,.0f} %)"


def reasons(prediction: Prediction) -> str:
    """What makes the difference."""
    parts = [
        f"the slowest worker takes {prediction.spread:.1f} times the median",
        f"Sync leaves {100 * prediction.idle_share:.0f} % of the workers' time idle",
    ]
    if prediction.late_share >= 0.005:
        parts.append(f"{100 * prediction.late_share:.0f} % of the batches come too late for GBA")
    return ", ".join(parts)


def _rate(samples_per_s: float) -> str:
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"
