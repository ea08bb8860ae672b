"""`hotrow plan routes`: two-phase routes between the GPUs of a host."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.route_tables import buffer_table, phase_table, route_document, route_table, time_lines
from hotrow.cli.screen import Screen, echo
from hotrow.errors import ConfigError, InputError
from hotrow.routes import Fabric, HostPaths, RoutePlan, parse_nvidia_topology, plan_routes
from hotrow.routes.fabric import PCIE_GBPS, SOCKET_GBPS, check_rate
from hotrow.routes.matrix import parse_matrix
from hotrow.routes.nvidia_topology import NVLINK_GBPS
from hotrow.sizes import parse_bytes

ARITHMETIC = "times are bytes by rates, without a fixed cost of a copy; nothing was measured"


def routes(
    topo: Annotated[
        Path | None, typer.Option("--topo", help="The output of `nvidia-smi topo -m`.", metavar="FILE")
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option("--matrix", help="GB/s from each GPU to each, 0: no link.", metavar="FILE.csv")
    ] = None,
    size: Annotated[str, typer.Option("--size", help="Bytes from each GPU to each other one.")] = "64MB",
    sockets: Annotated[
        str | None,
        typer.Option("--sockets", help="The socket of each GPU; with --matrix.", metavar="0,0,1,1"),
    ] = None,
    nvlink_gbps: Annotated[
        float | None,
        typer.Option(
            "--nvlink-gbps", help="Of one NVLink, per direction; with --topo.", show_default=f"{NVLINK_GBPS:g}"
        ),
    ] = None,
    pcie_gbps: Annotated[
        float | None,
        typer.Option("--pcie-gbps", help="Of a GPU's PCIe lanes, per direction.", show_default=f"{PCIE_GBPS:g}"),
    ] = None,
    socket_gbps: Annotated[
        float | None,
        typer.Option("--socket-gbps", help="Between two sockets, per direction.", show_default=f"{SOCKET_GBPS:g}"),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Plan an exchange between the GPUs of a host: pairs without a link go through a third GPU, in two phases.

    Shows the middlemen, copies, buffers and times, beside the way over the host.
    """
    check_writable("--json", json_file)
    if (topo is None) == (matrix is None):
        raise ConfigError("hotrow plan routes: give either --topo, as `nvidia-smi topo -m` prints it, or --matrix")
    nvlink, pcie, socket = (
        _rate(option, given, default)
        for option, given, default in (
            ("--nvlink-gbps", nvlink_gbps, NVLINK_GBPS),
            ("--pcie-gbps", pcie_gbps, PCIE_GBPS),
            ("--socket-gbps", socket_gbps, SOCKET_GBPS),
        )
    )
    if topo is not None:
        if sockets is not None:
            raise ConfigError(f"--sockets {sockets}: belongs to --matrix; --topo has the sockets")
        with _named("--topo", topo):
            found = parse_nvidia_topology(topo.read_text(encoding="utf-8"))
        fabric, assumptions = found.fabric(nvlink, pcie, socket), found.assumptions
    else:
        assert matrix is not None
        if nvlink_gbps is not None:
            raise ConfigError(f"--nvlink-gbps {nvlink_gbps:g}: belongs to --topo; --matrix has the rates of links")
        with _named("--matrix", matrix):
            fabric, assumptions = Fabric(parse_matrix(matrix.read_text(encoding="utf-8"))), ()
        if sockets is not None:
            fabric = replace(fabric, host=_host(sockets, fabric.gpus, pcie, socket))
        elif pcie_gbps is not None or socket_gbps is not None:
            raise ConfigError("--pcie-gbps, --socket-gbps: are of the way over the host: give --sockets too")
    plan, at_once = _plans(fabric, _bytes(size))
    write_json(json_file, route_document(plan, at_once, assumptions))
    screen = Screen()
    screen.print(route_table(plan))
    if plan.buffers:
        screen.print("", phase_table(plan), "", buffer_table(plan), sep="\n")
    echo("")
    for line in (*time_lines(plan, at_once), *assumptions, ARITHMETIC):
        echo(line)


def _rate(option: str, given: float | None, default: float) -> float:
    if given is None:
        return default
    check_rate(option, given)
    return given


def _plans(fabric: Fabric, size: int) -> tuple[RoutePlan, RoutePlan]:
    """With the host's copies one after the other, and all at once; with the same middlemen."""
    plan = plan_routes(fabric, size)
    if fabric.host is None:
        return plan, plan
    middlemen = {(each.source, each.target): each.gpu for each in plan.buffers}
    return plan, plan_routes(replace(fabric, host=replace(fabric.host, staged=False)), size, middlemen)


@contextmanager
def _named(option: str, path: Path) -> Iterator[None]:
    """Faults of a file with its name."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ConfigError(f"{option} {path}: cannot be read ({reason}): give a text file") from None
    except InputError as error:
        raise InputError(f"{option} {path}: {error}") from None


def _host(sockets: str, gpus: int, pcie_gbps: float, socket_gbps: float) -> HostPaths:
    parts = [part.strip() for part in sockets.split(",")]
    if len(parts) != gpus or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--sockets {sockets}: must be a number for each of {gpus} GPUs, as 0,0,0,0,1,1,1,1")
    numbers = tuple(map(int, parts))
    return HostPaths(numbers, numbers, pcie_gbps, socket_gbps)


def _bytes(size: str) -> int:
    try:
        return parse_bytes(size)
    except ValueError as error:
        raise ConfigError(f"--size {size}: {error}") from None
