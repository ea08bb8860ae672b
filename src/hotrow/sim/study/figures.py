"""The figures of a simulation side by side, as texts for a terminal and a page."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from hotrow.obs.report import formatting
from hotrow.sim.study.outcome import Outcome, setting_of
from hotrow.staleness import Histogram, Statistics

METRICS = {  # that are shown; a file has them all
    "auc": "AUC", "logloss": "logloss", "accuracy": "accuracy", "rmse": "RMSE", "mae": "MAE",
}  # fmt: skip
LOOKUPS = ("hits", "misses", "awaited", "ahead", "invalid")  # what becomes of a cached table's ids
Row = tuple[str, list[str | None]]  # a name, and a cell for each outcome; None: empty


def figures(outcomes: Sequence[Outcome]) -> list[Row]:
    """Rows in which at least one cell is not empty."""
    return [(name, cells) for name, cells in _rows(outcomes) if any(cell is not None for cell in cells)]


def _rows(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    def row(name: str, cell: Callable[[Outcome], str | None]) -> Row:
        return name, [cell(each) for each in outcomes]

    yield row("mode", lambda one: one.mode.name)
    yield row("its setting", lambda one: setting_of(one.mode))
    yield row("workers", lambda one: f"{one.facts.workers:,}")
    yield row("local batch", lambda one: f"{one.facts.local_batch:,}")
    yield row("samples per step", lambda one: f"{one.samples_per_step:,}")
    yield row("global QPS", lambda one: _spread(one.result.qps, one.qps_spread))
    first = outcomes[0].result.qps
    if len(outcomes) > 1 and first:
        yield row(f"beside {outcomes[0].label}", lambda one: f"x {one.result.qps / first:.2f}")
    yield row("local QPS", lambda one: _spread(one.result.local_qps, one.result.local_qps_spread))
    yield row("not computing", lambda one: f"{100 * one.idle_share:.0f} %")
    for name, word in METRICS.items():
        metrics = [(one.metrics or {}).get(name) for one in outcomes]
        yield word, [None if value is None else f"{value:.4f}" for value in metrics]
    yield row("virtual time", lambda one: formatting.duration(one.result.seconds))
    yield row("bytes of rows", lambda one: formatting.size(one.result.row_bytes) if one.result.row_bytes else None)
    yield row("cache hits", lambda one: _hits(one.result.statistics.counts))
    yield row(
        "changes of cached rows lost", lambda one: _count(one.result.statistics.counts.get("cached_rows_lost", 0))
    )
    yield row("steps", lambda one: f"{one.result.steps:,}")
    yield row("samples applied", lambda one: f"{one.result.samples_applied:,}")
    yield from _counts([one.result.statistics for one in outcomes])
    yield row("gradient staleness", lambda one: _late(one.result.statistics.gradient))
    yield row("data staleness", lambda one: _late(one.result.statistics.data))
    yield row("staleness of rows", lambda one: _late(one.result.statistics.rows))
    yield row("staleness of ids", lambda one: None if one.ids is None else _late(one.ids))
    yield row("switches", lambda one: f"{one.switches:,}" if one.switches or one.decisions or one.stays else None)


def _counts(counted: Sequence[Statistics]) -> Iterator[Row]:
    """Counts of irregularities. Batches dropped as late are gone; lost ones are computed again."""
    yield "short steps", [_count(each.short_steps) for each in counted]
    for reason in dict.fromkeys(reason for each in counted for reason in each.dropped):
        yield f"batches {reason}", [_count(each.dropped.get(reason, 0)) for each in counted]
        yield f"samples {reason}", [_count(each.samples_dropped.get(reason, 0)) for each in counted]
    yield "batches of weight 0", [_count(each.zero_weight) for each in counted]
    yield "batches decayed", [_count(each.decayed - each.zero_weight) for each in counted]
    yield "ids of weight 0", [_count(each.ids_zero_weight) for each in counted]
    yield "ids decayed", [_count(each.ids_decayed - each.ids_zero_weight) for each in counted]
    yield "pushes twice", [_count(each.duplicates) for each in counted]
    yield "pushes after a loss", [_count(each.after_loss) for each in counted]


def _hits(counts: Mapping[str, int]) -> str | None:
    """Of the distinct ids of batches; those that the batch before had requested count as misses."""
    of = {name: sum(each for key, each in counts.items() if key.startswith(f"cache_{name}.")) for name in LOOKUPS}
    return f"{100 * of['hits'] / sum(of.values()):.1f} %" if sum(of.values()) else None


def _count(count: int) -> str | None:
    return f"{count:,}" if count else None


def _spread(mean: float, spread: float | None) -> str:
    if spread is None:
        return formatting.short(mean)
    return f"{formatting.short(mean)} ± {formatting.short(spread)}"


def _late(histogram: Histogram) -> str | None:
    if histogram.mean is None:
        return None
    return f"{histogram.mean:,.2f} (max {histogram.largest:,})"
