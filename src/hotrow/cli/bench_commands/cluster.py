"""`hotrow bench cluster`: the modes of a cluster on this machine."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from hotrow.bench import report
from hotrow.bench.cluster.plan import PARTS, ClusterPlan
from hotrow.bench.peers import load_adapters
from hotrow.cli.bench_commands.checks import check_runnable
from hotrow.cli.bench_commands.options import Json, Peers, Quick
from hotrow.cli.bench_commands.stage_bar import StageBar
from hotrow.cli.screen import Screen, echo
from hotrow.errors import ConfigError
from hotrow.transport import check_installed


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
    json: Json = None,
    quick: Quick = False,
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
