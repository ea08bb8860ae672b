"""The page of a run: one HTML file that needs nothing else, made from the run folder alone."""

from pathlib import Path

from hotrow.disk import write_text
from hotrow.errors import InputError
from hotrow.obs.report.folder import read_folder
from hotrow.obs.report.page import page

FILE = "report.html"


def write_report(folder: Path) -> Path:
    """Write report.html into a run folder, whole or not at all; parts that are missing there are told on the page."""
    if not folder.is_dir():
        raise InputError(f"run folder {str(folder)!r} is not there: give the folder that a run has made")
    path = folder / FILE
    write_text(path, page(read_folder(folder)), "the report")
    return path
