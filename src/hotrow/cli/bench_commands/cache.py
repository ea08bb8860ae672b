"""`hotrow bench cache`: what the worker cache saves and costs."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from hotrow.bench.cache.plan import PARTS as CACHE_PARTS
from hotrow.bench.cache.plan import CachePlan
from hotrow.cli.bench_commands.checks import check_runnable
from hotrow.cli.bench_commands.options import Json, Quick
from hotrow.cli.bench_commands.stage_bar import StageBar
from hotrow.cli.screen import Screen, echo
from hotrow.errors import ConfigError
from hotrow.transport import check_installed


def cache(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(CACHE_PARTS)}; repeat for several. [all]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=10, help="Of the stream with the paper's skew. [10,000,000]")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="That have caches. [8]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of part epoch. [1]")] = None,
    gbps: Annotated[
        list[float] | None, typer.Option(min=0.001, help="Of a worker's link; repeat for several. [0.01, 1 and 10]")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="HOTROW_DATA", help="A folder with data sets: criteo_dac80k, gowalla.")
    ] = None,
    stream: Annotated[list[str] | None, typer.Option(help="Of part bytes; repeat for several. [all]")] = None,
    json: Json = None,
    update: Annotated[
        bool, typer.Option("--update", help="Keep what the file has of other parts and streams.")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="Write the miss rates to this SVG file.")] = None,
    quick: Quick = False,
) -> None:
    """The worker cache: bytes and epochs that it saves, its policies beside oracles, the cost of a hit."""
    check_installed()
    from hotrow.bench.cache import report as cache_report
    from hotrow.bench.cache.measured import measure as measure_cache
    from hotrow.bench.cache.picture import miss_rates_svg

    check_runnable("cache", json, picture)
    if strangers := [name for name in part or () if name not in CACHE_PARTS]:
        raise ConfigError(f"--part {strangers[0]}: must be of {', '.join(CACHE_PARTS)}")
    if data is not None and not data.is_dir():
        raise ConfigError(f"--data {data}: there is no such folder")
    parts = tuple(part or CACHE_PARTS)
    if picture is not None and "policies" not in parts:
        raise ConfigError(f"--picture {picture}: shows the miss rates of part policies, so give --part policies too")
    sizes = CachePlan().quick() if quick else CachePlan()
    job = replace(
        sizes,
        workers=workers or sizes.workers,
        rows=rows or sizes.rows,
        rounds=rounds or sizes.rounds,
        gbps=tuple(gbps) if gbps else sizes.gbps,
        only=tuple(stream or ()),
    )
    job.check()
    if "bytes" in parts and data is None:
        echo("no --data folder: streams of data sets are left out", err=True)
    with StageBar() as bar, TemporaryDirectory(prefix="hotrow-bench-") as folder:
        found = measure_cache(job, parts, Path(folder), data, bar)
    if json is not None:
        cache_report.write(json, cache_report.document(job, found), update=update)
    if picture is not None:
        picture.write_text(miss_rates_svg(found.points, cache_report.picture_headline(job)))
    Screen().print(cache_report.summary(job, found))
