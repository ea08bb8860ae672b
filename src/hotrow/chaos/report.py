"""The result of a chaos run as lines for a screen and as a document for JSON."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hotrow.chaos.learning import GAP_MOST
from hotrow.chaos.run import ChaosResult

SHOWN = (
    "lost_batches_dropped", "buffered_batches_lost", "steps_cut", "pushes_unanswered", "lost_pushes",
    "parked_pushes_lost", "partly_applied_pushes", "rows_applied_twice", "dense_steps_lost", "dense_pushes_lost",
    "replica_steps_lost", "scores_lost", "cached_rows_lost",
)  # fmt: skip


def counts_of(result: ChaosResult) -> Counter[str]:
    """What all parts of the run have reported."""
    parts = [each.counts for each in result.counted] + ([] if result.learned is None else [result.learned.counts])
    total: Counter[str] = Counter()
    for each in parts:
        total.update(each)
    return total


def injected_of(result: ChaosResult) -> Counter[tuple[str, str]]:
    """Faults by kind and by the kind of their role."""
    return Counter((each.fault.kind, each.name.kind) for each in result.injected if each.name is not None)


def lines(result: ChaosResult) -> Iterator[str]:
    """A short table, and the verdict."""
    for (kind, role), count in sorted(injected_of(result).items()):
        yield f"{kind:<8}{role:<20}{count:>8,}"
    held_back = sum(each.name is None for each in result.injected)
    yield f"{'held back':<28}{held_back:>8,}"
    counts = counts_of(result)
    for name in SHOWN:
        yield f"{name.replace('_', ' '):<28}{counts[name]:>8,}"
    yield f"{'mode':<12}{'pushes':>10}{'never':>8}{'twice':>8}  applied, by the rows (reported)"
    for counted in result.counted:
        for each in counted.balances:
            never, twice = f"{each.never} ({each.never_reported})", f"{each.twice} ({each.twice_reported})"
            yield f"{each.mode:<12}{each.pushes:>10,}{never:>8}{twice:>8}"
    for cached in (each.cached for each in result.counted if each.cached is not None):
        missing, extra = f"{cached.missing} ({cached.missing_most})", f"{cached.extra} ({cached.extra_most})"
        yield f"{'cached rows':<12}{'missing':>16}{'extra':>16}  updates, by the rows (at most, by the reports)"
        yield f"{cached.rows:<12,}{missing:>16}{extra:>16}"
    if result.learned is not None:
        yield f"{'mode':<12}{'samples':>10}{'AUC':>9}{'faults':>9}{'gap':>9}  at most {GAP_MOST}"
        for pair in result.learned.pairs:
            yield f"{pair.mode:<12}{pair.samples:>10,}{pair.auc:>9.4f}{pair.auc_faults:>9.4f}{pair.gap:>+9.4f}"
    yield from result.faults
    if result.faults:
        again = f"hotrow chaos --minutes {result.minutes:g} --seed {result.seed}"
        yield f"the ledger disagrees; the same plan of faults again: {again}"
    else:
        yield f"the ledger agrees (seed {result.seed}); of {result.processes} processes none is left"


def document(result: ChaosResult) -> dict[str, Any]:
    """Everything as plain data."""
    return {
        "seed": result.seed,
        "minutes": result.minutes,
        "agrees": not result.faults,
        "faults": result.faults,
        "injected": [
            {"at_s": each.at_s, "kind": each.fault.kind, "role": each.name, "mode": each.mode, "step": each.step}
            | ({"held_back": each.why} if each.name is None else {})
            for each in result.injected
        ],
        "counts": dict(counts_of(result)),
        "ledger": [asdict(each) for counted in result.counted for each in counted.balances],
        "cached": [asdict(each.cached) for each in result.counted if each.cached is not None],
        "auc": [] if result.learned is None else [{**asdict(each), "gap": each.gap} for each in result.learned.pairs],
        "processes": result.processes,
        "trace": result.trace,
    }
