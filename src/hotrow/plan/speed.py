"""Samples a second of each mode from the times of a batch, and the mode to choose. Pure.

Sync and GBA are predicted by `hotrow.switching`, as in a run with mode "auto". Hybrid hides lookups behind the
computation; KStep merges dense parameters every k steps instead of adding up gradients in each.
"""

from dataclasses import dataclass

from hotrow.modes.k_step import KStep
from hotrow.switching import Auto, BatchTime, Costs, predict

GAIN = Auto().gain  # a mode that gains less than this over Sync is not worth its differences
TITLES = {"sync": "Sync", "gba": "GBA", "hybrid": "Hybrid", "k_step": "KStep"}


@dataclass(frozen=True, slots=True)
class BatchSeconds:
    """What one batch of one trainer takes."""

    compute: float
    rows: float  # ids, rows and gradients on the network
    disk: float  # rows that are read from disk
    dense: float  # dense gradients on the network, a step

    @property
    def lookup(self) -> float:
        """That Sync waits for, and Hybrid reads ahead."""
        return self.rows + self.disk


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """Predicted samples a second of each mode, the mode to take, and why."""

    samples_per_s: dict[str, float]
    mode: str
    reason: str


def choose_mode(seconds: BatchSeconds, *, local_batch: int, trainers: int, parts: int, slowest: float) -> ModeChoice:
    """`parts`: local batches of a global one; `slowest`: batch time of the slowest trainer over that of the others."""
    busy_s = seconds.compute + seconds.lookup
    batches = {
        worker: [BatchTime(busy_s * (slowest if worker == trainers - 1 else 1.0), local_batch, 0)]
        for worker in range(trainers)
    }
    costs = Costs(sync_step_s=seconds.dense, gba_batch_s=seconds.dense)
    found = predict(batches, parts, costs, Auto().tolerance).samples_per_s
    rounds = -(-parts // trainers)  # batches of a trainer in a step
    # Of the slowest trainer everything is slower; what is read ahead counts only where it takes longest.
    hybrid_s = rounds * slowest * max(seconds.compute, seconds.lookup) + seconds.dense
    merged_s = rounds * slowest * busy_s + 2 * seconds.dense / KStep().k
    rates: dict[str, float] = {
        "sync": found["sync"],
        "gba": found["gba"],
        "hybrid": parts * local_batch / hybrid_s,
        "k_step": parts * local_batch / merged_s,
    }
    if trainers == 1:
        rates = {"sync": rates["sync"]}
        return ModeChoice(rates, "sync", "Sync: with one trainer there is nothing to wait for")
    return ModeChoice(rates, *_chosen(rates, seconds, slowest))


def _chosen(rates: dict[str, float], seconds: BatchSeconds, slowest: float) -> tuple[str, str]:
    best = max(rates, key=lambda name: rates[name])
    gain = rates[best] / rates["sync"] - 1
    if best == "sync" or gain <= GAIN:
        other = "" if best == "sync" else f" ({TITLES[best]} gains {100 * gain:.0f} %)"
        return "sync", f"Sync: no other mode is predicted to gain more than {100 * GAIN:.0f} %{other}"
    reasons = {
        "gba": f"the slowest trainer takes {slowest:.3g} times as long as the others, and GBA does not wait for it",
        "hybrid": f"lookups take {_ms(seconds.lookup)} of a batch that computes for {_ms(seconds.compute)}, and Hybrid "
        "reads rows ahead",
        "k_step": f"dense gradients take {_ms(seconds.dense)} a step, and KStep sends 2/{KStep().k} of them",
    }
    return best, f"{TITLES[best]}: {100 * gain:.0f} % faster than Sync; {reasons[best]}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
