"""`hotrow bench simulate`: the speed of the simulator."""

from dataclasses import replace
from typing import Annotated

import typer

from hotrow.bench import report
from hotrow.bench import simulate as simulation
from hotrow.bench.simulate_plan import SimulatePlan
from hotrow.cli.bench_commands.checks import check_places
from hotrow.cli.bench_commands.options import Json, Quick
from hotrow.cli.bench_commands.stage_bar import StageBar
from hotrow.cli.screen import Screen


def simulate(
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [5]")] = None,
    json: Json = None,
    quick: Quick = False,
) -> None:
    """The simulator: thousands of workers, every mode, and real gradients beside plain training."""
    check_places(json=json)
    sizes = SimulatePlan().quick() if quick else SimulatePlan()
    job = replace(sizes, rounds=rounds or sizes.rounds)
    with StageBar() as bar:
        figures = simulation.measure(job, bar)
    if json is not None:
        report.write_json(json, simulation.document(job, figures))
    Screen().print(simulation.summary(job, figures))
