"""Output of commands: control characters in names and lines of files are escaped before they reach a terminal.

Names, ids and lines of data reach sentences, tables, bars and logs. They are made printable here, at the end of every
way, and Rich's markup is never read in them.
"""

import logging
import sys
import threading
import warnings
from collections.abc import Iterable
from traceback import format_exception
from types import TracebackType
from typing import TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from hotrow.printable import one_line, printable


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Lines of text: results to standard output, everything else to standard error."""
    typer.echo(printable(text), err=err, nl=nl)


def cell(text: str) -> Text:
    """A cell of a table that holds a name from a file: no markup, no line feed, and its width is that of what shows."""
    return Text(one_line(text))


class Screen(Console):
    """Rich's console; what it draws itself may hold commands, what it is given may not."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Printable(logging.Formatter):
    """Log lines, tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def make_faults_printable() -> None:
    """Escape control characters in log lines without a handler, warnings and tracebacks of the command's process."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Printable("%(message)s"))
    sys.excepthook = show_traceback
    threading.excepthook = show_thread_traceback
    warnings.showwarning = show_warning


def show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For sys.excepthook: a traceback ends with a message, which may hold names from files."""
    sys.stderr.write(printable("".join(format_exception(kind, error, trace))))


def show_thread_traceback(fault: threading.ExceptHookArgs) -> None:
    """For threading.excepthook."""
    if fault.exc_value is not None and not isinstance(fault.exc_value, SystemExit):
        name = fault.thread.name if fault.thread is not None else "?"
        sys.stderr.write(printable(f"Exception in thread {name}:\n"))
        show_traceback(fault.exc_type, fault.exc_value, fault.exc_traceback)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """For warnings.showwarning."""
    (file or sys.stderr).write(printable(warnings.formatwarning(message, category, filename, lineno, line)))
