"""A simulation to look at: lanes of workers, staleness, speed over time."""

from collections.abc import Sequence
from pathlib import Path

from hotrow.disk import write_text
from hotrow.sim.study.config import SimulationConfig
from hotrow.sim.study.outcome import Outcome
from hotrow.sim.study.picture.page import page, svg

SUFFIXES = (".html", ".svg")


def write_picture(path: Path, config: SimulationConfig, outcomes: Sequence[Outcome], name: str) -> None:
    """A page or a picture, by the end of the file's name."""
    draw = svg if path.suffix == ".svg" else page
    write_text(path, draw(config, outcomes, name), "the picture")
