"""`hotrow doctor`: what this machine has, what it lacks and what that costs."""

from dataclasses import asdict

import typer
from rich.table import Table

from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.screen import Screen, cell, echo
from hotrow.doctor import Finding, Level, findings, read, usable
from hotrow.printable import one_line

STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.SLOW: "yellow", Level.FAULT: "bold red"}
UNUSABLE = 2


def doctor(json_file: JsonFile = None) -> None:
    """Check this machine: versions, processor, huge pages, shared memory, limits, Ray, GPU, and what to mend.

    Each line is ok, note (an optional part is missing), slow (it works, below what the machine could do) or fault.
    The exit code is 2 where there is a fault, else 0.
    """
    check_writable("--json", json_file)
    found = findings(read())
    write_json(json_file, {"usable": usable(found), "findings": [asdict(each) for each in found]})
    screen = Screen()
    if screen.is_terminal:
        screen.print(as_table(found))
    else:
        for finding in found:
            echo(as_line(finding))
    if not usable(found):
        raise typer.Exit(UNUSABLE)


def as_table(found: list[Finding]) -> Table:
    """For a terminal: the remedy is below its finding."""
    table = Table("part", "", "found", box=None, pad_edge=False)
    for finding in found:
        table.add_row(cell(finding.part), f"[{STYLES[finding.level]}]{finding.level}[/]", cell(finding.found))
        for more in filter(None, (finding.cost, finding.remedy and f"to mend: {finding.remedy}")):
            table.add_row("", "", cell(more), style="dim")
    return table


def as_line(finding: Finding) -> str:
    """For a pipe: fields between tabs, so that cut and grep can read them."""
    return "\t".join(map(one_line, (finding.part, finding.level, finding.found, finding.cost, finding.remedy))).rstrip()
