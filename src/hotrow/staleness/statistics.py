"""What every run counts, whatever its mode: grants and what became of them, and how late gradients were.

Counted from the events and effects of the discipline at work, so the figures mean the same in every mode and engine.
Counts that only the discipline has (duplicate pushes, short steps) come from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotrow.errors import InputError
from hotrow.modes.base import Apply, Drop, Effect, Event, GradientPart, Grant, Group, Pushed, Reason
from hotrow.staleness.histogram import Histogram
from hotrow.staleness.ids import IdCounts
from hotrow.staleness.weights import WeightCorrection

NOBODY_KNOWS: Mapping[int, int] = {}


@dataclass(slots=True)
class Statistics:
    """Counts of a run. They go on over switches of the mode."""

    granted: int = 0
    parked: int = 0
    steps: int = 0  # times that dense parameters were changed by an `Apply`; in KStep: merges
    decayed: int = 0  # parts of whose dense gradients any weighed less than 1, those of weight 0 included
    zero_weight: int = 0  # parts whose dense gradients weighed nothing
    parts: dict[Group, int] = field(default_factory=dict)  # applied, by the group of their `Apply`
    samples: dict[Group, int] = field(default_factory=dict)  # of these parts
    dropped: dict[str, int] = field(default_factory=dict)  # grants, by reason
    samples_dropped: dict[str, int] = field(default_factory=dict)  # of dropped grants, by reason, where known
    drops_of_unknown_size: int = 0
    data: Histogram = field(default_factory=Histogram)  # max(0, step - token) of parts with dense gradients
    gradient: Histogram = field(default_factory=Histogram)  # step - pulled step of parts with dense gradients
    rows: Histogram = field(default_factory=Histogram)  # step - pulled step of parts that hold embedding gradients only
    ids: Histogram = field(default_factory=Histogram)  # of single ids, reported by the tables
    ids_decayed: int = 0  # ids whose gradient weighed less than 1, those of weight 0 included
    ids_zero_weight: int = 0  # ids whose gradient weighed nothing
    counts: dict[str, int] = field(default_factory=dict)  # what disciplines counted, all of them together
    at_work: dict[str, int] = field(default_factory=dict)  # the part of it of the active mode

    def take(self, event: Event, effects: Sequence[Effect], samples_of: Mapping[int, int] = NOBODY_KNOWS) -> None:
        """Count what a discipline made of an event. `samples_of`: of grants that may be dropped without a push."""
        for effect in effects:
            match effect:
                case Grant():
                    self.granted += 1
                case Apply():
                    self._apply(effect)
                case Drop():
                    self._drop(event, effect, samples_of)
                case _:
                    self.parked += 1

    def _apply(self, apply: Apply) -> None:
        group, step, samples = apply.group, apply.step, 0
        if group == "embedding":
            rows = self.rows.counts
            for part in apply.parts:
                samples += part.samples
                late = step - part.pulled_step
                if late < 0:
                    raise _backwards(part, step)
                rows[late] = rows.get(late, 0) + 1
        else:
            self.steps += 1
            data, gradient = self.data.counts, self.gradient.counts
            for part in apply.parts:
                samples += part.samples
                behind = max(0, step - part.token)
                data[behind] = data.get(behind, 0) + 1
                late = step - part.pulled_step
                if late < 0:
                    raise _backwards(part, step)
                gradient[late] = gradient.get(late, 0) + 1
                if part.weight < 1.0:
                    self.decayed += 1
                    self.zero_weight += part.weight == 0.0
        self.parts[group] = self.parts.get(group, 0) + len(apply.parts)
        self.samples[group] = self.samples.get(group, 0) + samples

    def _drop(self, event: Event, drop: Drop, samples_of: Mapping[int, int]) -> None:
        reason = drop.reason
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if isinstance(event, Pushed) and event.grant == drop.grant:
            samples: int | None = event.samples
        else:
            samples = samples_of.get(drop.grant)
        if samples is None:
            self.drops_of_unknown_size += 1
        else:
            self.samples_dropped[reason] = self.samples_dropped.get(reason, 0) + samples

    def drop(self, reason: Reason, samples: Sequence[int]) -> None:
        """Count grants that were dropped without a decision of the discipline, by the samples of each."""
        if samples:
            self.dropped[reason] = self.dropped.get(reason, 0) + len(samples)
            self.samples_dropped[reason] = self.samples_dropped.get(reason, 0) + sum(samples)

    def add_ids(self, counted: IdCounts) -> None:
        """Add the staleness and weights of the ids of an aggregate, as the tables report them."""
        self.ids.merge(counted.late)
        self.ids_decayed += counted.decayed
        self.ids_zero_weight += counted.zero_weight

    def correct_weights(self, correction: WeightCorrection) -> None:
        """Count parts by the weights of their tensors, as servers report them, not by the discipline's weights."""
        self.decayed += correction.decayed
        self.zero_weight += correction.zero_weight

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Add counts of the servers since their last report."""
        for name, count in counts.items():
            if count:
                self.counts[name] = self.counts.get(name, 0) + count

    def update(self, counts: Mapping[str, int], *, last: bool = False) -> None:
        """Take over the counts of the discipline at work, as often as wanted. `last`: another one takes its place."""
        if counts == self.at_work and not last:
            return
        for name, count in counts.items():
            more = count - self.at_work.get(name, 0)
            if more < 0:
                raise InputError(f"{name}={count}: was more before; pass the last counts of a mode with last=True")
            self.counts[name] = self.counts.get(name, 0) + more
        self.at_work = {} if last else dict(counts)

    @property
    def applied(self) -> int:
        """Parts whose dense gradients were applied, with whatever weight. KStep applies only those of its merges."""
        return self.parts.get("both", 0) + self.parts.get("dense", 0)

    @property
    def applied_rows(self) -> int:
        """Parts whose embedding gradients were applied."""
        return self.parts.get("both", 0) + self.parts.get("embedding", 0)

    @property
    def samples_applied(self) -> int:
        """Samples of the parts whose dense gradients were applied."""
        return self.samples.get("both", 0) + self.samples.get("dense", 0)

    @property
    def samples_applied_rows(self) -> int:
        """Samples of the parts whose embedding gradients were applied."""
        return self.samples.get("both", 0) + self.samples.get("embedding", 0)

    @property
    def duplicates(self) -> int:
        """Duplicate pushes, as far as reported."""
        return self.counts.get("duplicate_pushes", 0)

    @property
    def after_loss(self) -> int:
        """Pushes after the loss of their worker, as far as reported."""
        return self.counts.get("pushes_after_loss", 0)

    @property
    def short_steps(self) -> int:
        """Steps with less than the global batch, as far as reported."""
        return self.counts.get("short_steps", 0)

    def document(self) -> dict[str, Any]:
        """Everything as plain data for JSON."""
        numbers = (
            "granted", "applied", "applied_rows", "steps", "parked", "decayed", "zero_weight", "ids_decayed",
            "ids_zero_weight", "duplicates", "after_loss", "short_steps", "samples_applied", "samples_applied_rows",
            "drops_of_unknown_size",
        )  # fmt: skip
        by_name = ("dropped", "samples_dropped", "counts")
        histograms = (("data", self.data), ("gradient", self.gradient), ("rows", self.rows), ("ids", self.ids))
        return {
            **{name: getattr(self, name) for name in numbers},
            **{name: dict(getattr(self, name)) for name in by_name},
            **{name: histogram.document() for name, histogram in histograms},
        }


def _backwards(part: GradientPart, step: int) -> InputError:
    message = f"grant={part.grant}: pulled at step {part.pulled_step} and applied at step {step}"
    return InputError(f"{message}; number the steps on over every restart and switch")
