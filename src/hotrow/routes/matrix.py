"""Reads a matrix of link rates from lines of comma-separated numbers. Names of GPUs may be in front and on top."""

from hotrow.errors import InputError


def parse_matrix(text: str) -> tuple[tuple[float, ...], ...]:
    """Rates in GB/s from each GPU (row) to each (column). Blank lines and those that begin with # are left out."""
    lines = [
        (number, [cell.strip() for cell in line.split(",")])
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if lines and not any(_is_rate(cell) for cell in lines[0][1]):
        lines = lines[1:]  # names of the columns
    if not lines:
        raise InputError("matrix: has no line of rates: write one for each GPU, as 0, 25, 50")
    named = all(not _is_rate(cells[0]) for _, cells in lines)
    return tuple(
        tuple(_rate(cell, number, column) for column, cell in enumerate(cells, 1) if not (named and column == 1))
        for number, cells in lines
    )


def _rate(cell: str, line: int, column: int) -> float:
    if not _is_rate(cell):
        raise InputError(f"matrix, line {line}, column {column}: {cell!r} must be a rate in GB/s, 0 for no link")
    return float(cell)


def _is_rate(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
