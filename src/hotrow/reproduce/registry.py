"""All experiments by name: `hotrow reproduce` runs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hotrow.reproduce import (
    asgd_figure_3,
    asgd_figure_5,
    asgd_figure_6,
    asgd_figure_7,
    auto_day,
    gba_figure_6,
    gba_figure_7,
    gba_table_5_2,
    het_adagrad,
    het_figures,
    het_picture,
    het_table_2,
    kstep_picture,
    kstep_routes,
)
from hotrow.reproduce.results import Tell


class Reproduction(Protocol):
    """Makes a result: plain data with the figures, the paper's beside them, and `promises`."""

    def __call__(self, quick: bool, *, tell: Tell) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or a figure of a paper, or what a paper left to be done."""

    title: str
    run: Reproduction
    table: Callable[[dict[str, Any]], list[str]]  # a result as lines for people
    minutes: float  # of one core
    picture: Callable[[dict[str, Any]], str] | None = None  # a result as SVG


EXPERIMENTS: dict[str, Experiment] = {
    "asgd-figure-3": Experiment(
        "Staleness of Async with 250 to 3,000 workers, and its spread", asgd_figure_3.run, asgd_figure_3.lines, 5
    ),
    "asgd-figure-5": Experiment(
        "Staleness normalisation with 3,000 asynchronous workers", asgd_figure_5.run, asgd_figure_5.lines, 7
    ),
    "asgd-figure-6": Experiment(
        "Data normalisation on top of it, with 1,000 and 3,000 workers", asgd_figure_6.run, asgd_figure_6.lines, 6
    ),
    "asgd-figure-7": Experiment(
        "SWAP over ten days, with drift and without", asgd_figure_7.run, asgd_figure_7.lines, 5
    ),
    "gba-table-5.2": Experiment(
        "Speed of six modes on a strained cluster and on an idle one", gba_table_5_2.run, gba_table_5_2.lines, 10
    ),
    "gba-figure-6": Experiment(
        "AUC after a switch from Sync to each mode, and back", gba_figure_6.run, gba_figure_6.lines, 40
    ),
    "gba-figure-7": Experiment(
        "GBA with other local batches, at the same global batch and at others (Fig. 8)",
        gba_figure_7.run,
        gba_figure_7.lines,
        20,
    ),
    "het-figure-7": Experiment(
        "Speed with a cache and without: eight workers, one server, 1 and 10 Gb/s",
        het_figures.figure_7,
        het_figures.lines,
        2,
    ),
    "het-figure-9": Experiment(
        "Speed by workers, from 1 to 32, with a cache and without, at 1 and 10 Gb/s",
        het_figures.figure_9,
        het_figures.lines,
        3,
        het_picture.picture,
    ),
    "het-table-2": Experiment(
        "AUC by the staleness of cached rows, and on test rows that hit a cache or miss it",
        het_table_2.run,
        het_table_2.lines,
        20,
    ),
    "het-adagrad": Experiment(
        "AUC by the staleness of cached rows with Adagrad, by what its accumulators count",
        het_adagrad.run,
        het_adagrad.lines,
        5,
    ),
    "kstep-routes": Experiment(
        "Two-phase routes of eight GPUs, and GPUDirect RDMA between nodes (Fig. 6 to 8), by arithmetic",
        kstep_routes.run,
        kstep_routes.lines,
        0.1,
        kstep_picture.picture,
    ),
    "auto-day": Experiment("Automatic switching over a day: throughput and AUC", auto_day.run, auto_day.lines, 20),
}
