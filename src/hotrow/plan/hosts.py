"""The section `[cluster]` of a file: the hosts that a capacity plan counts with."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from hotrow.sizes import Whole, parse_bytes
from hotrow.spec import Spec


def _size(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is not a size: write a number and a unit, as '512GB'")
    parse_bytes(value)
    return value


Size = Annotated[str, BeforeValidator(_size)]


class HostCluster(Spec):
    """Equal hosts. What is left out is taken from this machine, or assumed; a plan says which."""

    hosts: Whole = Field(default=1, ge=1, le=1_000_000)
    ram: Size | None = None  # of each host
    disk: Size | None = None  # of each host, for rows
    disk_read: Size | None = None  # bytes a second of each host
    cores: Whole | None = Field(default=None, ge=1, le=100_000)  # of each host
    gpus: Whole | None = Field(default=None, ge=0, le=1024)  # of each host
    network_gbps: float | None = Field(default=None, gt=0, le=1e6)  # of each host, in each direction
    trainer_samples_per_s: float | None = Field(default=None, gt=0)  # of one trainer; None: measured on this machine
    slowest: float = Field(default=1.0, ge=1, le=1000)  # batch time of the slowest trainer over that of the others


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """The same with every value filled in, and where the values come from."""

    hosts: int
    ram_bytes: int
    disk_bytes: int
    disk_read_bytes: int
    cores: int
    gpus: int
    network_bytes: float  # a second, in each direction
    slowest: float = 1.0
    assumptions: tuple[str, ...] = ()
