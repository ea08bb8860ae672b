"""`hotrow plan`: what a run needs before it starts, which cores it would use, and routes between GPUs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hotrow.cli import formatting
from hotrow.cli.bars import Bar
from hotrow.cli.capacity_picture import capacity_svg
from hotrow.cli.capacity_tables import capacity_document, capacity_tables, parameter_document, parameter_tables
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.plan_routes import routes
from hotrow.cli.screen import Screen, echo
from hotrow.cli.topology_tables import binding_table, topology_document, topology_table
from hotrow.cli.train import Changes
from hotrow.config import Table
from hotrow.data.config import open_data
from hotrow.disk import write_text
from hotrow.errors import ConfigError
from hotrow.plan.hosts import HostCluster
from hotrow.plan.measuring import plan_run
from hotrow.plan.parameters import parse_count, plan_parameters
from hotrow.run import load_config
from hotrow.run.config_file import read_cluster_section
from hotrow.topology.affinity import rehearse
from hotrow.topology.binding import ThreadCounts, plan_binding
from hotrow.topology.sysfs import read_topology

REFUSED = 2

app = typer.Typer(
    no_args_is_help=True, help="Plan a run: its capacity on a cluster, its threads on a host, and routes between GPUs."
)
app.command()(routes)


@app.callback()
def plan() -> None:
    """Plan a run: its capacity on a cluster, its threads on a host, and routes between GPUs."""


@app.command()
def topology(
    apply: Annotated[
        bool, typer.Option("--apply", help="Bind a thread for each line, read its processors back, and end.")
    ] = False,
    trainers: Annotated[int, typer.Option(min=1, max=4096, help="Threads or processes that compute.")] = 1,
    store_threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads that look up and update rows.")] = 1,
    sys: Annotated[
        Path | None, typer.Option("--sys", help="Read a copy of /sys, of another host.", metavar="DIR")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Show sockets, NUMA nodes, cores, caches and devices of this host, and which threads a run binds where.

    A run binds its threads with run.engine.bind_cores = true. On a host with one NUMA node nothing is bound.
    """
    check_writable("--json", json_file)
    if apply and sys is not None:
        raise ConfigError(
            f"--sys {sys}: is another host, whose threads cannot be bound here: leave --apply or --sys out"
        )
    found = read_topology(sys)
    planned = plan_binding(found, ThreadCounts(trainers=trainers, store=store_threads))
    tried, refusal = rehearse(planned) if apply else ([], None)
    write_json(json_file, topology_document(found, planned, tried if apply else None, refusal))
    screen = Screen()
    screen.print(topology_table(found))
    echo(f"\n{planned.summary}")
    if planned.bindings:
        screen.print(binding_table(planned, tried if apply else None))
    for sentence in planned.unbound:
        echo(sentence)
    if apply and planned.bindings:
        refused = [each for each in tried if not each.bound]
        kept = "interleaved" if refusal is None else f"not interleaved ({refusal})"
        echo(f"{formatting.several(len(tried) - len(refused), 'thread')} bound, {len(refused)} refused; memory {kept}")
        if refused or refusal is not None:
            raise typer.Exit(REFUSED)


@app.command()
def capacity(
    file: Annotated[Path | None, typer.Argument(help="The config of a run.", metavar="FILE.toml")] = None,
    changes: Changes = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Take [cluster] from this file instead of the config.", metavar="FILE.toml")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="Read so many rows; default: 200,000, all where there is no number of rows."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of the whole data, where the files do not tell.")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option(help="Plan a model of so many parameters instead of a run.", metavar="100T")
    ] = None,
    dim: Annotated[int | None, typer.Option(min=1, max=65_536, help="Floats of a row; with --parameters.")] = None,
    value_type: Annotated[
        Literal["float32", "float16", "bfloat16"], typer.Option("--type", help="Of the values; with --parameters.")
    ] = "float32",
    optimizer: Annotated[str, typer.Option(help="Of the rows; with --parameters.")] = "adagrad",
    json_file: JsonFile = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw bytes of hosts and tiers as bars.", metavar="FILE.svg")
    ] = None,
) -> None:
    """Predict rows, bytes of RAM and disk, network, samples a second and the mode of a run on a cluster.

    Reads a sample of the data and trains on some batches of it. [cluster] in the file describes the hosts. With
    --parameters no file is needed: the arithmetic for a model of that size, line by line.
    """
    check_writable("--json", json_file)
    check_writable("--picture", picture)
    if picture is not None and picture.suffix != ".svg":
        raise ConfigError(f"--picture {picture}: is drawn as .svg: give it such a name")
    if (file is None) == (parameters is None):
        raise ConfigError(
            "hotrow plan capacity: give the config of a run, or --parameters, as --parameters 100T --dim 128"
        )
    hosts = None if cluster is None else read_cluster_section(cluster)
    if parameters is not None:
        _parameters(parameters, dim, value_type, optimizer, hosts, json_file, picture)
        return
    assert file is not None
    if dim is not None:
        raise ConfigError(f"--dim {dim}: belongs to --parameters; a config has it in its tables")
    config = load_config(file, changes or ())
    with Bar("rows") as bar:
        planned = plan_run(
            config,
            open_data(config.data),
            hosts or config.cluster or HostCluster(),
            sample_rows=sample,
            rows=rows,
            watch=bar.rows,
        )
    write_json(json_file, capacity_document(planned))
    screen = Screen()
    for number, table in enumerate(capacity_tables(planned)):
        screen.print(*([""] if number else []), table, sep="\n")
    _lines("does not fit", planned.faults)
    _lines("assumed", planned.assumptions)
    if picture is not None:
        _draw(picture, capacity_svg(planned))


def _parameters(
    count: str,
    dim: int | None,
    value_type: str,
    optimizer: str,
    hosts: HostCluster | None,
    json_file: Path | None,
    picture: Path | None,
) -> None:
    if picture is not None:
        raise ConfigError(f"--picture {picture}: is drawn for the config of a run: leave it or --parameters out")
    table = Table(dim=128 if dim is None else dim, type=value_type, optimizer={"name": optimizer})
    planned = plan_parameters(parse_count(count), table, hosts)
    write_json(json_file, parameter_document(planned))
    for number, printed in enumerate(parameter_tables(planned)):
        Screen().print(*([""] if number else []), printed, sep="\n")
    _lines("assumed", planned.assumptions)


def _lines(title: str, sentences: tuple[str, ...]) -> None:
    if sentences:
        echo(f"\n{title}:")
    for sentence in sentences:
        echo(f"- {sentence}")


def _draw(path: Path, drawing: str) -> None:
    write_text(path, drawing, "the picture")
    echo(str(path))
