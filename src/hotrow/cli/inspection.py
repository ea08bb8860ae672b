"""The figures of a checkpoint as tables of text."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hotrow.cli.formatting import magnitude
from hotrow.cli.screen import cell
from hotrow.sizes import size_text

UNKNOWN = "-"
TENSORS_MOST = 40  # shown; --json has all
SHARDS_MOST = 8


def inspection_tables(document: dict[str, Any]) -> Iterator[Table | Text]:
    """The chain, the tables with their distributions and top rows, the dense tensors."""
    yield _chain(document)
    yield _tables(document["tables"])
    yield _distributions(document["tables"])
    for name, figures in document["tables"].items():
        if figures["top"]:
            yield _top(name, figures["top"])
    yield _dense(document["dense"])


def row_lines(row: dict[str, Any]) -> Iterator[str]:
    """One row, a line for each field."""
    for name, value in row.items():
        match value:
            case list():
                shown = " ".join(f"{each:.6g}" for each in value)
            case int() if name == "key":
                shown = f"{value} ({value:#x})"
            case _:
                shown = str(value)
        yield f"{name.replace('_', ' ')}: {shown}"


def _chain(document: dict[str, Any]) -> Table:
    numbers = ("step", "samples", "size", "rows", "removed")
    title = f"checkpoint {document['checkpoint']}, {size_text(document['bytes'])}"
    table = _table(title, ("number", "kind", "saved", *numbers), numbers=numbers)
    for link in document["chain"]:
        when = [_count(link[name]) for name in ("step", "samples")]
        counted = [size_text(link["bytes"]), _count(link["rows"]), _count(link["removed"])]
        table.add_row(f"{link['number']:06d}", link["kind"], cell(link["saved_at"]), *when, *counted)
    return table


def _tables(tables: dict[str, Any]) -> Table:
    numbers = ("rows", "size", "dim", "state", "waiting")
    names = ("table", *numbers[:-1], "optimizer", "rows of shards", "waiting")
    table = _table("tables", names, numbers=numbers)
    for name, figures in tables.items():
        shards = figures["shards"]
        shown = ", ".join(map(_count, shards[:SHARDS_MOST])) + (", …" if len(shards) > SHARDS_MOST else "")
        optimizer = (figures["optimizer"] or {}).get("name", UNKNOWN)
        rows = _count(figures["rows"])
        if figures["rows"] != figures["rows_in_manifest"]:
            rows += f" (manifest: {_count(figures['rows_in_manifest'])})"
        columns = [rows, size_text(figures["bytes"]), str(figures["dim"]), str(figures["state_dim"])]
        shards_text = shown if len(shards) == 1 else f"{len(shards)}: {shown}"
        table.add_row(cell(name), *columns, cell(optimizer), shards_text, _count(figures["waiting"]))
    return table


def _distributions(tables: dict[str, Any]) -> Table:
    parts = ["p0", "p1", "p10", "p50", "p90", "p99", "p100"]
    numbers = ("min", *parts[1:-1], "max")
    table = _table("distributions over rows", ("table", "of", *numbers, ""), numbers=numbers)
    for name, figures in tables.items():
        lines = {
            "norm of the value": (figures["norm"], _norm_note(figures)),
            "updates": (figures["updates"], _skew_note(figures)),
            "steps since the last update": (figures["steps_since_update"], ""),
            "samples since last seen": (figures["samples_since_seen"], ""),
        }
        shown = name
        for what, (found, note) in lines.items():
            if found["p0"] is not None:
                table.add_row(cell(shown), what, *(magnitude(found[part]) for part in parts), note)
                shown = ""
    return table


def _norm_note(figures: dict[str, Any]) -> str:
    return f"{_count(figures['norm']['not_finite'])} not finite" if figures["norm"]["not_finite"] else ""


def _skew_note(figures: dict[str, Any]) -> str:
    shares = figures["update_share_of_top"]
    notes = [f"top {float(part):.0%} of rows: {share:.1%}" for part, share in shares.items() if share is not None]
    notes += [f"never: {_count(figures['never_updated'])}"] if figures["never_updated"] else []
    return ", ".join(notes)


def _top(name: str, rows: list[dict[str, Any]]) -> Table:
    table = _table(f"most updated rows of {name}", list(rows[0]), numbers=rows[0])
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def _dense(tensors: list[dict[str, Any]] | None) -> Table | Text:
    if tensors is None:
        return cell("no dense tensors: this checkpoint holds tables alone")
    size = size_text(sum(each["bytes"] for each in tensors))
    more = f", the first {TENSORS_MOST} shown" if len(tensors) > TENSORS_MOST else ""
    table = _table(f"{len(tensors)} dense tensors, {size}{more}", ("name", "type", "shape"))
    for each in tensors[:TENSORS_MOST]:
        table.add_row(cell(each["name"]), cell(each["type"]), " x ".join(map(str, each["shape"])) or "scalar")
    return table


def _table(title: str, names: Sequence[str], *, numbers: Collection[str] = ()) -> Table:
    """Columns by name; those of numbers are aligned to the right."""
    table = Table(box=None, pad_edge=False, title=cell(title), title_justify="left", title_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in numbers else "left")
    return table


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"
