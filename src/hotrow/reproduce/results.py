"""What the experiments give back and how it reads: plain data for JSON, promises with their figures, tables as text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Tell = Callable[[str], None]


def silent(text: str) -> None:
    """For who does not want to hear how far it is."""


def promise(said: str, holds: bool, found: str) -> dict[str, Any]:
    """What should come out, whether it did, and the figures it is judged by."""
    return {"promise": said, "holds": bool(holds), "found": found}


def promise_lines(result: Mapping[str, Any]) -> list[str]:
    """The promises of a result, one a line; those of a quick run are not judged."""
    if result.get("quick"):
        return ["small sizes: promises are not judged"]
    return [
        f"{'holds' if each['holds'] else 'FAILS'}  {each['promise']}: {each['found']}" for each in result["promises"]
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text, the first to the left and the others to the right, which is where numbers stand well."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = [head, ["-" * width for width in widths], *rows]
    return ["  ".join(_placed(line, widths)).rstrip() for line in lines]


def _placed(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if not place else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
