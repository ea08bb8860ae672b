"""`hotrow bench tiers`: tables with rows on disk."""

from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated

import typer

from hotrow.bench import report
from hotrow.bench.peers import load_adapters
from hotrow.bench.tiers import report as tiers_report
from hotrow.bench.tiers.measured import measure as measure_tiers
from hotrow.bench.tiers.picture import capacity_svg
from hotrow.bench.tiers.plan import PARTS as TIER_PARTS
from hotrow.bench.tiers.plan import TiersPlan
from hotrow.cli.bench_commands.checks import check_runnable
from hotrow.cli.bench_commands.options import Peers, Quick
from hotrow.cli.bench_commands.stage_bar import StageBar
from hotrow.cli.screen import Screen
from hotrow.errors import ConfigError


def tiers(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(TIER_PARTS)}; repeat for several. [all]")
    ] = None,
    dim: Annotated[
        list[int] | None, typer.Option(min=1, help="Floats per row; repeat for several. [16 and 128]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1000, help="Ids of all features together. [4,000,000]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [5]")] = None,
    steps: Annotated[int | None, typer.Option(min=2, help="Steps of each in a round. [20]")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Of a batch. [4,096]")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Rows are on this folder's disk. [that for temporary files]")
    ] = None,
    peer: Peers = None,
    json: Annotated[
        Path | None, typer.Option(help="Write all figures to this file; other parts that it has stay in it.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Write the part `capacity` to this SVG file.")] = None,
    quick: Quick = False,
) -> None:
    """Rows in memory and on disk, beside memory alone, the disk's rate and peers; options; up to 100 T parameters."""
    check_runnable("tiers", json, picture)
    if strangers := [name for name in part or () if name not in TIER_PARTS]:
        raise ConfigError(f"--part {strangers[0]}: must be of {', '.join(TIER_PARTS)}")
    parts = tuple(name for name in TIER_PARTS if name in (part or TIER_PARTS))
    if picture is not None and "capacity" not in parts:
        raise ConfigError(f"--picture {picture}: shows the part capacity, so give --part capacity too")
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--folder {folder}: there is no such folder, make it first")
    if json is not None:
        tiers_report.merged(json, {})
    adapters = load_adapters(peer or (), "tiers")
    sizes = TiersPlan().quick() if quick else TiersPlan()
    job = replace(
        sizes,
        dims=tuple(dim) if dim else sizes.dims,
        rows=rows or sizes.rows,
        rounds=rounds or sizes.rounds,
        steps=steps or sizes.steps,
        samples=samples or sizes.samples,
        capacity=replace(sizes.capacity, rounds=rounds or sizes.capacity.rounds, steps=steps or sizes.capacity.steps),
    )
    job.check_room(folder or Path(gettempdir()), parts)
    with StageBar() as bar:
        figures = measure_tiers(job, parts, folder, bar, adapters)
    if json is not None:
        report.write_json(json, tiers_report.merged(json, tiers_report.document(job, figures, adapters)))
    if picture is not None:
        picture.write_text(capacity_svg(job, figures["capacity"], tiers_report.capacity_headline(job)))
    Screen().print(tiers_report.summary(job, figures, adapters))
