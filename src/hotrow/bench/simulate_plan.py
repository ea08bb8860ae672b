"""What a run of `hotrow bench simulate` measures."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatePlan:
    """Sizes of one run; the defaults are the job that the targets are set for."""

    rounds: int = 5
    many: int = 3_000  # asynchronous workers that compute nothing
    updates: int = 260_000  # of them
    several: int = 400  # workers of each mode
    mode_updates: int = 40_000
    training: int = 100  # workers with real gradients
    batches: int = 400  # that they train on in a round
    local_batch: int = 512
    features: int = 26
    numbers: int = 13
    ids: int = 1_000_000  # of all features together
    dim: int = 16
    hidden: tuple[int, ...] = (64, 32)

    def quick(self) -> "SimulatePlan":
        """The same in seconds; its figures say that everything works, and no more."""
        counted = replace(self, rounds=1, many=60, updates=2_000, several=20, mode_updates=400)
        return replace(counted, training=5, batches=20, local_batch=32, features=3, ids=1_000)
