"""A description of data as tables for a terminal, with pictures of blocks."""

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from hotrow.cli.screen import cell
from hotrow.data.describe import Description, IdColumn, NumberColumn, Times

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 24  # characters of a picture
DAYS_IN_LINES = 31  # more days are one picture


def tables(found: Description, *, is_part: bool = False, pictures: bool = True) -> Iterator[Table]:
    """The description as tables, one for each kind of column. `is_part`: of the train part of a split."""
    yield _overview(found, is_part)
    if found.ids:
        yield _ids(found.ids, found.rows, pictures)
    if found.numbers:
        yield _numbers(found.numbers, found.rows)
    if found.times is not None:
        yield _days(found.times, pictures)


def skew_picture(skew: Sequence[tuple[int, int]], ranks: int, most: int, width: int = WIDTH) -> str:
    """How often the k-th most frequent id came: both axes logarithmic, from 1 to `ranks` and from 1 to `most`.

    Features with the same axes can be compared: a short picture has few ids, a flat one has even ones.
    """
    if not skew:
        return ""
    last = skew[-1][0] * (1 + 1e-9)  # roots and powers leave a last bit
    ways = [ranks ** (place / (width - 1)) for place in range(width)]
    return "".join(block(_share(_count_at(skew, rank), most)) for rank in ways if rank <= last)


def block(share: float) -> str:
    """A block as high as a share of 1."""
    return BLOCKS[min(len(BLOCKS) - 1, int(share * len(BLOCKS)))]


def _share(value: float, most: float) -> float:
    """Of the way from 1 to `most`, on a logarithmic axis."""
    return 1.0 if most <= 1 else math.log(max(1.0, value)) / math.log(most)


def _count_at(skew: Sequence[tuple[int, int]], rank: float) -> int:
    """The count of the first known rank that is not before this one: counts fall."""
    return next((count for known, count in skew if known >= rank), skew[-1][1])


def days_picture(per_day: Mapping[str, int], width: int = 2 * WIDTH) -> str:
    """Rows of stretches of days, as heights."""
    counts = list(per_day.values())
    size = math.ceil(len(counts) / width)
    stretches = [counts[start : start + size] for start in range(0, len(counts), size)]
    means = [sum(stretch) / len(stretch) for stretch in stretches]
    return "".join(block(mean / max(means)) for mean in means)


def _overview(found: Description, is_part: bool) -> Table:
    table = _table()
    notes = ["the train part: data.split leaves the others out"] if is_part else []
    notes += [] if found.complete else ["the first ones; there are more"]
    table.add_row("rows", f"{found.rows:,}" + (f" ({'; '.join(notes)})" if notes else ""))
    for name, mean in found.labels.items():
        table.add_row(cell(f"mean of label {name}"), "unknown" if mean is None else f"{mean:.4f}")
    if found.times is not None:
        table.add_row("from", found.times.first)
        table.add_row("to", found.times.last)
    if found.malformed:
        table.add_row("malformed lines", f"{found.malformed:,}")
    return table


def _ids(columns: Sequence[IdColumn], rows: int, pictures: bool) -> Table:
    ranks, most = max(column.distinct for column in columns), max(_top(column) for column in columns)
    table = _table("ids of", "different", "missing", "top share", "per row")
    if pictures:
        table.add_column("skew", no_wrap=True)
        table.caption = f"skew: how often the k-th id comes, k to {ranks:,}, to {most:,} times, both log"
        table.caption_justify = "left"
    for column in columns:
        several = column.most_per_sample > 1
        table.add_row(
            cell(column.name),
            f"{column.distinct:,}" if column.exact else f"~{column.distinct:,}",
            _percent(column.missing, rows),
            "" if column.top_share is None else f"{100 * column.top_share:.1f} %",
            f"{column.ids_per_sample:.1f}, at most {column.most_per_sample:,}" if several else "1",
            *([skew_picture(column.skew, ranks, most)] if pictures else []),
        )
    return table


def _top(column: IdColumn) -> int:
    return column.skew[0][1] if column.skew else 1


def _numbers(columns: Sequence[NumberColumn], rows: int) -> Table:
    table = _table("number", "missing", "lowest", "5 %", "median", "95 %", "highest", "mean", "deviation")
    for column in columns:
        cuts = [column.quantiles.get(share) for share in ("0.05", "0.5", "0.95")]
        figures = (column.low, *cuts, column.high, column.mean, column.deviation)
        table.add_row(cell(column.name), _percent(column.missing, rows), *map(_figure, figures))
    return table


def _days(times: Times, pictures: bool) -> Table:
    table = _table("day", "rows")
    per_day = times.rows_per_day
    if len(per_day) <= DAYS_IN_LINES:
        most = max(per_day.values())
        for day, count in per_day.items():
            bar = "█" * round(WIDTH * count / most) if pictures else ""
            table.add_row(day, f"{count:,}", bar)
    else:
        table.add_row(f"{len(per_day)} days", f"{sum(per_day.values()):,}", days_picture(per_day) if pictures else "")
    return table


def _table(*names: str) -> Table:
    """Names on the left, figures on the right."""
    table = Table(box=None, pad_edge=False, show_header=bool(names))
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", no_wrap=place > 0, overflow="fold")
    return table


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if part else "0"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
