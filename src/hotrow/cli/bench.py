"""`hotrow bench`: measurements that anyone can repeat, one file each."""

import typer

from hotrow.cli.bench_commands.cache import cache
from hotrow.cli.bench_commands.checkpoint import checkpoint
from hotrow.cli.bench_commands.cluster import cluster
from hotrow.cli.bench_commands.gpu import gpu
from hotrow.cli.bench_commands.simulate import simulate
from hotrow.cli.bench_commands.store import store
from hotrow.cli.bench_commands.threads import threads
from hotrow.cli.bench_commands.tiers import tiers
from hotrow.cli.bench_commands.train import train

app = typer.Typer(no_args_is_help=True, help="Measure Hotrow against its peers and against the machine.")


@app.callback()
def bench() -> None:
    """Measure Hotrow against its peers and against the machine."""


for command in (store, threads, train, checkpoint, simulate, cluster, cache, tiers, gpu):
    app.command()(command)
