"""`hotrow bench train`: a DeepFM from file to update, beside torch and peers."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from hotrow.bench import report, train_report
from hotrow.bench.peers import load_adapters
from hotrow.bench.train import measure as measure_training
from hotrow.bench.train_plan import TrainPlan
from hotrow.cli.bench_commands.checks import check_runnable, give_peers_huge_pages
from hotrow.cli.bench_commands.options import Json, Peers, Quick
from hotrow.cli.bench_commands.stage_bar import StageBar
from hotrow.cli.screen import Screen
from hotrow.errors import ConfigError


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
    json: Json = None,
    quick: Quick = False,
) -> None:
    """A DeepFM from file to update: our table beside torch's and those of peers, interleaved."""
    check_runnable("train", json, None)
    adapters = load_adapters(peer or (), "training")
    give_peers_huge_pages()
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
