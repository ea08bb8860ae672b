"""What the embedding tables hold: rows, memory, lives; and how unevenly their rows were trained."""

from typing import Any, TypeAlias

from markupsafe import Markup

from hotrow.obs import cache_counts, gpu_counts
from hotrow.obs.report import formatting
from hotrow.obs.report.charts import (
    SERIES,
    Trace,
    axis,
    chart,
    cut,
    decades,
    line,
    missing,
    plain,
    points,
    samples_axis,
)
from hotrow.obs.report.folder import TABLES, ReportInputs
from hotrow.obs.report.rendering import render
from hotrow.obs.report.run import Record, RunRecord, columns, number
from hotrow.obs.table_counts import CountedMemory, by_table

Bin: TypeAlias = tuple[float, float, float]

COUNTS = {"created": "created", "evicted": "evicted", "expired": "expired", "turned_away": "turned away"}
CACHE_COUNTS = {
    "hits": "cache hits", "misses": "misses", "awaited": "awaited", "invalid": "invalid", "ahead": "too far ahead",
    "written": "write-backs", "overflowed": "beyond capacity", "refused": "refused", "lost": "lost",
    "dropped": "dropped",
}  # fmt: skip
GPU_COUNTS = {
    "rows": "rows in GPU memory", "capacity": "room for rows", "hits": "hits", "up": "moved up",
    "up_ahead": "of these ahead", "reread": "batches read again", "down": "moved down",
}  # fmt: skip
DISK_COUNTS = {
    "moved_down": "moved to disk", "moved_up": "moved to memory", "moved_ahead": "moved ahead",
    "moved_late": "rows waited for", "hinted": "ids announced", "hints_dropped": "ids dropped",
}  # fmt: skip
DISK_SIZES = {
    "disk_bytes": "file", "disk_index_bytes": "index in memory", "disk_filter_bytes": "index filters",
    "disk_page_bytes": "index pages",
}  # fmt: skip
LINES_MOST = len(SERIES)  # tables in one picture of lines
BARS_MOST = 3  # tables in the histogram
TICKS_MOST = 8  # under its bars
NO_UPDATES = "The run has not written yet how often its rows were updated."
PARTS = {"value_bytes": ("values", "--blue"), "state_bytes": ("optimizer state", "--orange")}
REST = ("index and the rest", "--grey")


def tables(folder: ReportInputs) -> Markup:
    """The section: from tables.json, or from the last event about tables where the run has not come so far."""
    template = "obs/report/templates/tables.html"
    found, source = _latest(folder)
    if not found:
        return render(template, rows=[], source=source)
    names = sorted(found, key=lambda name: -(number(found[name], "rows") or 0))
    drawn = names[:LINES_MOST]
    hidden = len(names) - len(drawn)
    return render(
        template,
        source=source,
        titles=["table", "rows", "dim", "memory", "values", "state", *COUNTS.values()],
        rows=[_cells(name, found[name]) for name in names],
        total=_total(found) if len(names) > 1 else None,
        caches=_caches(folder.run),
        cache_titles=["table", *CACHE_COUNTS.values(), "hit share", "bytes saved", "share saved"],
        gpus=_gpus(folder.run),
        gpu_titles=["table", *GPU_COUNTS.values(), "hit share"],
        disks=[_disk_cells(name, found[name]) for name in names if number(found[name], "disk_bytes")],
        disk_titles=["table", "rows on disk", *DISK_SIZES.values(), *DISK_COUNTS.values(), "waited"],
        drawn=len(drawn),
        hidden=formatting.count(hidden) if hidden else None,
        pictures=[
            _growth(folder.run, drawn, found),
            _memory(found, drawn),
            _skew(found, drawn),
            _updates(found, names),
        ],
    )


def _latest(folder: ReportInputs) -> tuple[dict[str, Record], str]:
    """Records of the tables, and a sentence where they are not those of the end or there are none."""
    found = _records(folder.tables)
    if found:
        return found, ""
    why = folder.missing.get(TABLES) or "tables.json holds no table yet."
    for event in reversed(folder.run.tables):
        found = _records(event.get("tables"))
        if found:
            return found, f"{why} The figures are those after {formatting.count(number(event, 'samples'))} samples."
    return {}, why


def _records(given: Any) -> dict[str, Record]:
    return (
        {name: record for name, record in given.items() if isinstance(record, dict)} if isinstance(given, dict) else {}
    )


def _total(found: dict[str, Record]) -> list[str]:
    summed = ("rows", "bytes", "value_bytes", "state_bytes", *COUNTS)
    total = {key: sum(number(record, key) or 0 for record in found.values()) for key in summed}
    return _cells("all tables", total)


def _cells(name: str, record: Record) -> list[str]:
    return [
        name,
        formatting.count(number(record, "rows")),
        formatting.count(number(record, "dim")),
        *(formatting.size(number(record, key)) for key in ("bytes", "value_bytes", "state_bytes")),
        *(formatting.count(number(record, key)) for key in COUNTS),
    ]


def _disk_cells(name: str, record: Record) -> list[str]:
    return [
        name,
        formatting.count(number(record, "disk_rows")),
        *(formatting.size(number(record, key)) for key in DISK_SIZES),
        *(formatting.count(number(record, key)) for key in DISK_COUNTS),
        f"{number(record, 'disk_wait_s') or 0:,.1f} s",
    ]


def _counted(run: RunRecord, memory: CountedMemory) -> dict[str, dict[str, float]]:
    """The counts of the end of the run, by table."""
    told = (run.end or {}).get("counts")
    return by_table({name: number(told, name) or 0 for name in told} if isinstance(told, dict) else {}, memory)


def _gpus(run: RunRecord) -> list[list[str]]:
    """What was found in GPU memory and moved, where tables have rows there."""
    return [
        [
            table,
            *(formatting.count(found.get(key, 0)) for key in GPU_COUNTS),
            f"{gpu_counts.hit_share(found):.1%}",
        ]
        for table, found in _counted(run, "gpu").items()
    ]


def _caches(run: RunRecord) -> list[list[str]]:
    """What the caches of the workers counted, where tables have one."""
    return [
        [
            table,
            *(formatting.count(found.get(key, 0)) for key in CACHE_COUNTS),
            f"{cache_counts.hit_share(found):.1%}",
            formatting.size(found.get("bytes_saved", 0)),
            f"{cache_counts.saved_share(found):.1%}",
        ]
        for table, found in _counted(run, "cache").items()
    ]


def _growth(run: RunRecord, names: list[str], found: dict[str, Record]) -> Markup:
    title = "Rows over the run"
    traces = []
    for name, color in zip(names, SERIES, strict=False):
        x, y = columns(run.tables, "samples", ("tables", name, "rows"))
        if len(x) > 1:
            traces.append(points(name, x, y, color, hovertemplate="%{y:,d} rows<extra>%{fullData.name}</extra>"))
    if not traces:
        return missing(title, "The run has written fewer than two reports about its tables: there is no line to draw.")
    full = [name for name in names if number(found[name], "evicted")]
    note = "A line flattens as the data repeat ids that have a row already."
    if full:
        note += f" {', '.join(full)}: a flat line is a full table, in which new rows evict old ones."
    up = axis("rows", tickformat="~s", rangemode="tozero")
    return chart(title, note, traces, xaxis=samples_axis(), yaxis=up)


def _memory(found: dict[str, Record], names: list[str]) -> Markup:
    title = "Memory"
    known = [name for name in names if number(found[name], "bytes") is not None]
    if not known:
        return missing(title, "The run has not written how much memory the tables take.")
    known.reverse()  # Plotly draws the first bar at the bottom
    parts = {word: ([number(found[name], key) or 0 for name in known], color) for key, (word, color) in PARTS.items()}
    whole = [number(found[name], "bytes") or 0 for name in known]
    scale, unit = formatting.byte_unit(max(whole))
    named = [sum(values[place] for values, _ in parts.values()) for place in range(len(known))]
    parts[REST[0]] = ([max(0, total - part) for total, part in zip(whole, named, strict=True)], REST[1])
    traces = [
        {
            "type": "bar", "orientation": "h", "name": word, "y": list(range(len(known))), "width": 0.5,
            "x": [value / scale for value in values], "marker": {"color": color},
            "customdata": [[formatting.size(value), plain(name)] for value, name in zip(values, known, strict=True)],
            "hovertemplate": f"%{{customdata[0]}} of {word}<extra>%{{customdata[1]}}</extra>",
        }
        for word, (values, color) in parts.items()
    ]  # fmt: skip
    spare = max(0, 3 - len(known)) / 2  # one bar alone would be a wall
    ticks = {"tickvals": list(range(len(known))), "ticktext": [cut(name) for name in known]}
    up = axis("", showgrid=False, range=[-0.5 - spare, len(known) - 0.5 + spare], **ticks)
    note = "The rest is the index, the keys, the counters and room to grow."
    return chart(title, note, traces, barmode="stack", xaxis=axis(unit, rangemode="tozero"), yaxis=up)


def _skew(found: dict[str, Record], names: list[str]) -> Markup:
    title = "Skew"
    traces = []
    for name, color in zip(names, SERIES, strict=False):
        x, y = columns(found[name].get("skew"), 0, 1)
        above = [(rank, times) for rank, times in zip(x, y, strict=True) if rank > 0 and times > 0]
        if above:
            hover = "row %{x:,d}: %{y:,d} updates<extra>%{fullData.name}</extra>"
            traces.append(line(name, [x for x, _ in above], [y for _, y in above], color, hovertemplate=hover))
    if not traces:
        return missing(title, NO_UPDATES)
    across = decades("rows, the most trained first", (rank for trace in traces for rank in trace["x"]))
    up = decades("updates", (updates for trace in traces for updates in trace["y"]))
    note = (
        "Both axes are logarithmic; rows without an update are not on them. The steeper the line, the more of the "
        "training falls on few rows."
    )
    return chart(title, note, traces, xaxis=across, yaxis=up)


def _updates(found: dict[str, Record], names: list[str]) -> Markup:
    title = "Updates per row"
    known = [name for name in names if _bins(found[name].get("updates"))]
    if not known:
        return missing(title, NO_UPDATES)
    drawn = known[:BARS_MOST]
    spans = sorted({piece[:2] for name in drawn for piece in _bins(found[name].get("updates"))})
    traces = [
        _bars(name, _bins(found[name].get("updates")), spans, color) for name, color in zip(drawn, SERIES, strict=False)
    ]
    each = -(-len(spans) // TICKS_MOST)  # every so many bars a tick
    ticks = {
        "tickvals": list(range(0, len(spans), each)),
        "ticktext": [formatting.short_tick(low) for low, _ in spans[::each]],
    }
    across = axis("updates of the row, from", showgrid=False, tickangle=0, **ticks)
    few = f" The {len(drawn)} largest of {len(known)} tables." if len(drawn) < len(known) else ""
    note = f"However often an id stands in a batch, that is one update.{few}"
    return chart(title, note, traces, xaxis=across, yaxis=axis("part of the rows", tickformat=".0%"), bargap=0.25)


def _bars(name: str, bins: list[Bin], spans: list[tuple[float, float]], color: str) -> Trace:
    """The part of a table's rows in each span of updates."""
    rows = {piece[:2]: piece[2] for piece in bins}
    total = sum(rows.values()) or 1
    told = [[formatting.count(rows.get(span, 0)), _span(*span)] for span in spans]
    hover = "%{customdata[0]} rows, %{y:.1%}<br>with %{customdata[1]}<extra>%{fullData.name}</extra>"
    return {
        "type": "bar", "name": plain(name), "x": list(range(len(spans))), "marker": {"color": color},
        "y": [rows.get(span, 0) / total for span in spans], "customdata": told, "hovertemplate": hover,
    }  # fmt: skip


def _bins(given: Any) -> list[Bin]:
    """Triples (low, high, rows) of a histogram: rows with low to high updates, both included."""
    return list(zip(*columns(given, 0, 1, 2), strict=True))


def _span(low: float, high: float) -> str:
    return formatting.plural(low, "update") if low == high else f"{low:,.0f} to {high:,.0f} updates"
