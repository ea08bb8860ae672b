"""The page of a run: one HTML file that needs nothing else, made from the run folder alone."""

import os
from pathlib import Path

from hotrow.errors import InputError
from hotrow.obs.report.folder import read_folder
from hotrow.obs.report.page import page

FILE = "report.html"


def write_report(folder: Path) -> Path:
    """Write report.html into a run folder, whole or not at all; parts that are missing there are told on the page."""
    if not folder.is_dir():
        raise InputError(f"run folder {str(folder)!r} is not there: give the folder that a run has made")
    path = folder / FILE
    unfinished = path.with_suffix(".html.part")
    text = page(read_folder(folder))
    unfinished.write_text(text, encoding="utf-8", errors="replace")  # a damaged line may hold what UTF-8 has not
    os.replace(unfinished, path)
    return path
