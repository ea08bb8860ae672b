"""The base class of modes: frozen settings that check a run, and start a discipline."""

from abc import abstractmethod
from typing import Literal

from hotrow.errors import ConfigError
from hotrow.modes.base import Discipline, Group, RunFacts
from hotrow.spec import Spec
from hotrow.staleness.decay import Staleness

Dense = Literal["all-reduce", "server", "local"]  # where dense parameters are changed
Steps = Literal[0, 1, "auto"]  # of look-ahead


class Mode(Spec):
    """Base of all modes: frozen settings, and `start`, which makes a discipline.

    Example:
        >>> from hotrow.modes import Mode, Sync
        >>> isinstance(Sync(), Mode), Sync().most_in_flight
        (True, 1)
    """

    name: str

    @property
    def dense(self) -> Dense:
        """Where dense parameters are updated."""
        return "server"

    @property
    def groups(self) -> tuple[Group, ...]:
        """The pushes of each grant, in this order: its samples count with the first, the last one ends its step.

        An `Apply` of another group merges what was applied before, and has no gradients of its own.
        """
        return ("both",)

    @property
    def late(self) -> Staleness | None:
        """The policy for late gradients; None: they count like the others."""
        return None

    @property
    def most_in_flight(self) -> int:
        """Grants that one worker may hold at once, without look-ahead."""
        return 1

    @property
    def looks_ahead(self) -> bool:
        """Whether steps can be granted before the open one is applied (`LookAhead`)."""
        return False

    @property
    def first_look_ahead(self) -> int:
        """Steps of look-ahead when the mode starts; `LookAhead` events may change it."""
        return 0

    def most_held(self, facts: RunFacts, look_ahead: int) -> int:
        """Grants that one worker may hold at once: with look-ahead its share of the open step and of those ahead."""
        if not look_ahead:
            return self.most_in_flight
        return -(-facts.parts // facts.workers) * (1 + look_ahead)

    def on_arrival(self, facts: RunFacts, samples: int) -> float | None:
        """The factor of a batch's row gradients where they may be applied on arrival; None: in their step.

        No later event can change their weight then, so a shard need not wait for the driver.
        """
        return None

    def samples_per_step(self, facts: RunFacts) -> int:
        """The samples of a dense step."""
        return facts.global_batch

    def check(self, facts: RunFacts) -> None:
        """ConfigError where the mode does not support the run."""
        check_whole_parts(self.name, facts)

    def remarks(self, facts: RunFacts) -> list[str]:
        """Sentences for the user, where steps do not hold the global batch."""
        samples = self.samples_per_step(facts)
        if samples == facts.global_batch:
            return []
        message = f"{self.name} applies {samples:,} samples a step, the global batch is {facts.global_batch:,}"
        return [f"{message}: learning rates that were tuned for one will not fit the other"]

    @abstractmethod
    def start(self, facts: RunFacts) -> Discipline:
        """Make the discipline of a run."""


class LookAheadMode(Mode):
    """Base of modes whose steps can be granted before the open one is applied."""

    look_ahead: Steps = "auto"  # steps whose rows are read early; "auto": what is faster

    @property
    def looks_ahead(self) -> bool:
        return True

    @property
    def first_look_ahead(self) -> int:
        return 1 if self.look_ahead == 1 else 0


def check_whole_parts(mode: str, facts: RunFacts) -> None:
    """A global batch is made of whole local ones."""
    if facts.global_batch % facts.local_batch == 0:
        return
    whole, local = facts.global_batch, facts.local_batch
    below = next(size for size in range(local, 0, -1) if whole % size == 0)
    above = next(size for size in range(local, whole + 1) if whole % size == 0) if local < whole else whole
    fits = f"{below:,} or {above:,}" if below != above else f"{below:,}"
    raise ConfigError(
        f"local_batch={local}: {mode} puts whole local batches together to a global batch of {whole:,}, "
        f"which {local:,} does not divide: take {fits}"
    )
