"""`hotrow bench`: measurements that anyone can repeat."""

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Annotated, Self

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hotrow.bench import checkpoint as saving
from hotrow.bench import checkpoint_report, pages, report, train_report
from hotrow.bench import simulate as simulation
from hotrow.bench import threads as thread_curve
from hotrow.bench.cache.plan import PARTS as CACHE_PARTS
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.checkpoint_plan import CheckpointPlan
from hotrow.bench.cluster.plan import PARTS, ClusterPlan
from hotrow.bench.curve import measure_curve
from hotrow.bench.peers import load_adapters
from hotrow.bench.picture import curve_svg, threads_svg
from hotrow.bench.plan import StorePlan
from hotrow.bench.shared_memory import lack_of_room
from hotrow.bench.simulate_plan import SimulatePlan
from hotrow.bench.store import measure
from hotrow.bench.threads import ThreadsPlan
from hotrow.bench.tiers import report as tiers_report
from hotrow.bench.tiers.measured import measure as measure_tiers
from hotrow.bench.tiers.picture import capacity_svg
from hotrow.bench.tiers.plan import PARTS as TIER_PARTS
from hotrow.bench.tiers.plan import TiersPlan
from hotrow.bench.train import measure as measure_training
from hotrow.bench.train_plan import TrainPlan
from hotrow.cli.screen import Screen, echo
from hotrow.errors import ConfigError
from hotrow.transport import check_installed

app = typer.Typer(no_args_is_help=True, help="Measure Hotrow against its peers and against the machine.")

Peers = Annotated[
    list[Path] | None,
    typer.Option("--peer", help="An adapter of another system, as in benchmarks/peers; repeat for several."),
]


class StageBar:
    """A bar on a terminal, one line per stage in a log file; always on standard error."""

    def __init__(self) -> None:
        self._console = Screen(stderr=True)
        words = TextColumn("{task.description}")
        self._progress = Progress(
            words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=self._console, transient=True
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, label: str, total: int) -> None:
        if not self._console.is_terminal:
            self._console.print(label)
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(label, total=total)

    def tick(self) -> None:
        if self._task is not None:
            self._progress.advance(self._task)


@app.callback()
def bench() -> None:
    """Measure Hotrow against its peers and against the machine."""


@app.command()
def store(
    dim: Annotated[
        list[int] | None, typer.Option(min=1, help="Floats per row; repeat for several. [16 and 64]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows in the table. [10,000,000]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [60]")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads for ours and for the peers.")] = 2,
    peer: Peers = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Also measure a tenth to twice the rows, at dim 16.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Write the curve to this SVG file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")] = False,
) -> None:
    """One training step of our table, torch's and those of peers, interleaved, beside the limits of the machine."""
    check_runnable("store", json, picture)
    adapters = load_adapters(peer or (), "store")
    if picture is not None and not curve:
        raise ConfigError(f"--picture {picture}: shows the curve, so give --curve too")
    if not pages.peers_get_huge_pages():
        echo(f"starting again with {pages.TUNABLES}={pages.HUGE_MALLOC}: peers get 2 MB pages too", err=True)
        pages.restart_with_huge_pages()
    sizes = StorePlan(threads=threads).quick() if quick else StorePlan(threads=threads)
    dims = tuple(dim) if dim else sizes.dims
    job = replace(sizes, dims=dims, rows=rows or sizes.rows, rounds=rounds or sizes.rounds)
    job.check_memory()
    for lack in filter(None, (lack_of_room(job, size) for size in job.dims)):
        echo(lack, err=True)
    with StageBar() as bar:
        figures = measure(job, bar, adapters)
        points = measure_curve(job, bar) if curve else None
    if json is not None:
        report.write_json(json, report.document(job, figures, points, adapters))
    if picture is not None and points is not None:
        picture.write_text(curve_svg(points, report.curve_headline(job)))
    Screen().print(report.summary(job, figures, points, adapters))


@app.command()
def threads(
    dim: Annotated[
        list[int] | None, typer.Option(min=1, help="Floats per row; repeat for several. [16 and 64]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows in the table. [10,000,000]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [12]")] = None,
    most: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads at most. [the cores]")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write the curve of the first dim to this SVG file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")] = False,
) -> None:
    """One training step of our table and torch's on 1, 2, 4, … threads, for a small and a large batch."""
    check_runnable("threads", json, picture)
    if not pages.peers_get_huge_pages():
        echo(f"starting again with {pages.TUNABLES}={pages.HUGE_MALLOC}: peers get 2 MB pages too", err=True)
        pages.restart_with_huge_pages()
    sizes = ThreadsPlan().quick() if quick else ThreadsPlan()
    dims = tuple(dim) if dim else sizes.dims
    job = replace(sizes, dims=dims, rows=rows or sizes.rows, rounds=rounds or sizes.rounds, most=most or 0)
    job.check_memory()
    with StageBar() as bar:
        points = thread_curve.measure_threads(job, bar)
    if json is not None:
        report.write_json(json, thread_curve.document(job, points))
    if picture is not None:
        picture.write_text(threads_svg(points, dims[0], job.batches, thread_curve.headline(job)))
    Screen().print(thread_curve.summary(job, points))


@app.command()
def train(
    dim: Annotated[
        list[int] | None, typer.Option(min=1, help="Floats per row; repeat for several. [16 and 64]")
    ] = None,
    network: Annotated[list[str] | None, typer.Option(help="wide or narrow; repeat for both. [both]")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Ids of all features together. [10,000,000]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [9]")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each in a round. [24]")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads for ours and for the peers.")] = 2,
    peer: Peers = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")] = False,
) -> None:
    """A DeepFM from file to update: our table beside torch's and those of peers, interleaved."""
    check_runnable("train", json, None)
    adapters = load_adapters(peer or (), "training")
    if not pages.peers_get_huge_pages():
        echo(f"starting again with {pages.TUNABLES}={pages.HUGE_MALLOC}: peers get 2 MB pages too", err=True)
        pages.restart_with_huge_pages()
    sizes = TrainPlan(threads=threads).quick() if quick else TrainPlan(threads=threads)
    networks = {name: sizes.networks[name] for name in network or sizes.networks if name in sizes.networks}
    if network and len(networks) != len(set(network)):
        raise ConfigError(f"--network {' '.join(network)}: must be of {', '.join(sizes.networks)}")
    job = replace(
        sizes,
        dims=tuple(dim) if dim else sizes.dims,
        networks=networks,
        rows=rows or sizes.rows,
        rounds=rounds or sizes.rounds,
        steps=steps or sizes.steps,
    )
    job.check_memory()
    with StageBar() as bar, TemporaryDirectory(prefix="hotrow-bench-") as folder:
        figures = measure_training(job, Path(folder), bar, adapters)
    if json is not None:
        report.write_json(json, train_report.document(job, figures, adapters))
    Screen().print(train_report.summary(job, figures, adapters))


@app.command()
def checkpoint(
    dim: Annotated[int | None, typer.Option(min=1, help="Floats per row. [16]")] = None,
    rows: Annotated[int | None, typer.Option(min=100, help="Rows in the table. [2,000,000]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everything runs once. [9]")] = None,
    folder: Annotated[Path | None, typer.Option(help="Write to this folder's disk. [that for temporary files]")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")] = False,
) -> None:
    """Saving and loading beside plain writes and reads of as many bytes, training meanwhile, and deltas."""
    check_runnable("checkpoint", json, None)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--folder {folder}: there is no such folder, make it first")
    sizes = CheckpointPlan().quick() if quick else CheckpointPlan()
    job = replace(sizes, dim=dim or sizes.dim, rows=rows or sizes.rows, rounds=rounds or sizes.rounds)
    job.check_room(folder or Path(gettempdir()))
    with StageBar() as bar, TemporaryDirectory(prefix="hotrow-bench-", dir=folder) as place:
        figures = saving.measure(job, Path(place), bar)
    if json is not None:
        report.write_json(json, checkpoint_report.document(job, figures))
    Screen().print(checkpoint_report.summary(job, figures))


@app.command()
def simulate(
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [5]")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")] = False,
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


@app.command()
def cluster(
    part: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(PARTS)}; repeat for several. [all]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [5]")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each in a round. [32]")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Of each pair that is compared by AUC. [5]")] = None,
    in_flight: Annotated[
        int | None, typer.Option(min=1, max=256, help="Batches of a trainer that Hybrid has under way. [4]")
    ] = None,
    criteo: Annotated[
        Path | None, typer.Option(help="A file in Criteo's format: bytes on the wire are counted on it.")
    ] = None,
    peer: Peers = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")] = False,
) -> None:
    """A cluster on this machine: its modes under delay and beside a straggler, one process, peers; bytes and AUC."""
    check_installed()
    from hotrow.bench.cluster import report as cluster_report
    from hotrow.bench.cluster.measured import measure as measure_cluster

    check_runnable("cluster", json, None)
    if strangers := [name for name in part or () if name not in PARTS]:
        raise ConfigError(f"--part {strangers[0]}: must be of {', '.join(PARTS)}")
    if criteo is not None and not criteo.is_file():
        raise ConfigError(f"--criteo {criteo}: there is no such file")
    adapters = load_adapters(peer or (), "cluster")
    if part and "peers" in part and not adapters:
        raise ConfigError("--part peers: there is no peer, name its adapter by --peer FILE")
    sizes = ClusterPlan().quick() if quick else ClusterPlan()
    job = replace(
        sizes,
        rounds=rounds or sizes.rounds,
        steps=steps or sizes.steps,
        seeds=seeds or sizes.seeds,
        in_flight=in_flight or sizes.in_flight,
        tail=max(sizes.tail, in_flight or 0),
        criteo=criteo,
    )
    job.check_steps()
    parts = tuple(part or (name for name in PARTS if name != "peers" or adapters))
    if "wire" in parts and criteo is None:
        echo("no --criteo file: bytes on the wire are not counted", err=True)
    with StageBar() as bar, TemporaryDirectory(prefix="hotrow-bench-") as folder:
        figures = measure_cluster(job, parts, Path(folder), bar, adapters)
    if json is not None:
        report.write_json(json, cluster_report.document(job, figures, adapters))
    Screen().print(cluster_report.summary(job, figures, adapters))


@app.command()
def cache(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(CACHE_PARTS)}; repeat for several. [all]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=10, help="Of the stream with the paper's skew. [10,000,000]")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="That have caches. [8]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of part epoch. [1]")] = None,
    gbps: Annotated[
        list[float] | None, typer.Option(min=0.001, help="Of a worker's link; repeat for several. [0.1, 1 and 10]")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="HOTROW_DATA", help="A folder with data sets: criteo_dac80k, gowalla.")
    ] = None,
    stream: Annotated[list[str] | None, typer.Option(help="Of part bytes; repeat for several. [all]")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Keep what the file has of other parts and streams.")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="Write the miss rates to this SVG file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")] = False,
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


@app.command()
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
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")] = False,
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


def check_runnable(command: str, json: Path | None, picture: Path | None) -> None:
    """Raise before a long run what would fail at its end."""
    if sys.platform != "linux":
        raise ConfigError(f"hotrow bench {command} reads memory from /proc, which {sys.platform} has not: use Linux")
    check_places(json=json, picture=picture)


def check_places(**files: Path | None) -> None:
    """The folders of the files that will be written, by their options."""
    for option, path in files.items():
        if path is not None and not path.parent.is_dir():
            raise ConfigError(f"--{option} {path}: the folder {path.parent} does not exist, make it first")
        if path is not None and path.is_dir():
            raise ConfigError(f"--{option} {path}: is a folder, name a file in it")
