"""The engine of a run: this process, or Ray."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator, model_validator

from hotrow.sizes import Whole, WholeOrSize, number_text, parse_bytes, whole
from hotrow.spec import Spec, named_settings
from hotrow.types import Security, Values

TRAINERS_MOST = 4096


def _trainers(value: Any) -> int | tuple[int, int]:
    """A number, or the fewest and the most of a number that changes with the cluster."""
    if not isinstance(value, list | tuple):
        return _number_of_trainers(value)
    if len(value) != 2:
        raise ValueError("must be a whole number, or the fewest and the most, as [1, 8]")
    fewest, most = map(_number_of_trainers, value)
    if fewest > most:
        raise ValueError(f"the fewest come first, as [{most}, {fewest}]")
    return fewest, most


def _number_of_trainers(value: Any) -> int:
    number = whole(value)
    if not 1 <= number <= TRAINERS_MOST:
        raise ValueError(f"must be from 1 to {TRAINERS_MOST:,}")
    return number


Trainers = Annotated[int | tuple[int, int], BeforeValidator(_trainers)]


class Local(Spec):
    """Runs training in this process, on the CPU or a GPU; `workers` are its threads.

    Example:
        >>> import hotrow as hr
        >>> hr.Local(device="cpu").device
        'cpu'
    """

    name: Literal["local"] = "local"
    device: str = "auto"  # "cpu", "cuda" or "cuda:1": of the network and rows near it; auto: a GPU, if there is one
    bind_cores: bool = False  # threads to cores near their memory and devices; one NUMA node: no effect

    @field_validator("device")
    @classmethod
    def _device_has_a_name(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", value):
            raise ValueError("must be 'auto', 'cpu', 'cuda', or a GPU by its number, as 'cuda:1'")
        return value


class Resources(Spec):
    """The resources that one actor of a role requests from Ray."""

    cpus: float = Field(default=1.0, ge=0)
    gpus: float = Field(default=0.0, ge=0)
    custom: dict[str, float] = Field(default_factory=dict)  # custom resources of the nodes


class Ray(Spec):
    """Runs training on a Ray cluster: rows on shards, computation on trainers. `pip install 'hotrow[ray]'`.

    Example:
        >>> import hotrow as hr
        >>> hr.Ray(shards=2, trainers=4, embedding_workers=1).trainers
        4

        Not run here, because it starts processes:

        >>> trainer = hr.Trainer(model, table, engine=hr.Ray())  # doctest: +SKIP
    """

    name: Literal["ray"] = "ray"
    address: str | None = None  # of a Ray that runs, "auto" for the one of this machine; None: one is started and ended
    trainers: Trainers = 1  # (fewest, most): as many as the cluster has room for, also later
    shards: Whole = Field(default=1, ge=1, le=1024)
    embedding_workers: Whole = Field(default=0, ge=0, le=64)  # that look up and pool for the trainers; 0: none
    loaders: Whole = Field(default=0, ge=0, le=1024)  # that read the data; 0: the trainers, or else the run's process
    replace_lost: Whole = Field(default=3, ge=0, le=4096)  # trainers and shards, at most so many in a row; 0: none
    shared_rows: bool = True  # rows of shards in shared memory, where a shard that is started again finds them
    threads: Whole = Field(default=1, ge=1, le=1024)  # of each role
    parked_bytes: WholeOrSize = "1GiB"  # of parked gradients on a shard; of rows and dense ones each
    values: Values | dict[str, Values] = "fp32"  # the wire format of rows and gradients, for all tables or by name
    security: Security = "key"
    key: Path | None = None  # a file of `hotrow keygen`; None: a key for this run, which Ray sends to the roles
    bind: Literal["loopback", "node"] = "loopback"  # "node": roles on several hosts reach each other
    trainer: Resources = Resources()
    shard: Resources = Resources()
    embedding_worker: Resources = Resources()
    loader: Resources = Resources()
    delay_s: float = Field(default=0.0, ge=0, le=60)  # to shards and back, each: emulates a slow network on one machine
    link_gbps: float = Field(default=0.0, ge=0, le=1000)  # of a trainer to the shards, each way, likewise; 0: no limit
    bind_cores: bool = False  # roles to the cores of a NUMA node of their host; one node: no effect
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "SPREAD"  # of the placement group

    @model_validator(mode="after")
    def _devices_are_whole(self) -> "Ray":
        if self.trainer.gpus != int(self.trainer.gpus):
            message = f"trainer.gpus={number_text(self.trainer.gpus)}: a trainer needs a device of its own"
            raise ValueError(f"{message}: give 0 or 1")
        return self

    @property
    def trainers_fewest(self) -> int:
        """How many have to start."""
        return self.trainers[0] if isinstance(self.trainers, tuple) else self.trainers

    @property
    def trainers_most(self) -> int:
        """How many may take part."""
        return self.trainers[1] if isinstance(self.trainers, tuple) else self.trainers

    @property
    def elastic(self) -> bool:
        """Whether the number of trainers changes with the cluster."""
        return isinstance(self.trainers, tuple)

    @property
    def parked_most(self) -> int:
        """`parked_bytes` as a number."""
        return parse_bytes(self.parked_bytes) if isinstance(self.parked_bytes, str) else self.parked_bytes


def _by_name(value: Any) -> Any:
    """A name alone is an engine with its defaults."""
    return {"name": value} if isinstance(value, str) else value


AnyEngine = Annotated[Annotated[Local | Ray, Field(discriminator="name")], BeforeValidator(_by_name)]
EngineChoice: TypeAlias = Local | Ray | str | Mapping[str, Any]


def engine_of(value: EngineChoice | None) -> Local | Ray:
    """An engine from itself, its name, or a dict with its name and settings."""
    if value is None:
        return Local()
    if isinstance(value, Local | Ray):
        return value
    kinds: dict[str, type[Local] | type[Ray]] = {"local": Local, "ray": Ray}
    settings = named_settings("engine", value, kinds, "'local', hotrow.Ray(...), or a dict with a name")
    return kinds[settings["name"]](**settings)
