"""The outcomes of a simulation as tables for a terminal: a column for each mode, as many as there is room for."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from hotrow.cli.screen import cell
from hotrow.sim.study.figures import Row, figures
from hotrow.sim.study.outcome import Outcome

GAP = 2  # characters between two columns


def tables(outcomes: Sequence[Outcome], width: int) -> Iterator[Table]:
    """All figures; modes that do not fit beside the others follow below."""
    if not outcomes:
        return
    rows: list[Row] = [("", [one.label for one in outcomes]), *figures(outcomes)]
    names = max(len(name) for name, _ in rows)
    widths = [max(len(cells[place] or "") for _, cells in rows) + GAP for place in range(len(outcomes))]
    start = 0
    while start < len(outcomes):
        stop = start + 1
        while stop < len(outcomes) and names + sum(widths[start : stop + 1]) <= width:
            stop += 1
        yield _table(rows, slice(start, stop))
        start = stop


def _table(rows: Sequence[Row], shown: slice) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    (_, labels), *body = rows
    table.add_column("", no_wrap=True)
    for label in labels[shown]:
        table.add_column(cell(label or ""), justify="right", overflow="fold")
    for name, cells in body:
        if not any(cells[shown]):
            continue
        table.add_row(cell(name), *(cell(text or "") for text in cells[shown]))
    return table
