"""Settings of a table: dimension, optimizer, first values, fields of rows, capacity, disk, expiry, segment, cache."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from hotrow.admission import AnyAdmission, AtLeast, Chance
from hotrow.optim.sparse import Adagrad, AnyOptimizer
from hotrow.sizes import FILE_NAME_RULE, MOST, Size, Whole, WholeOrSize, fits_file_name, parse_bytes, whole_or_size
from hotrow.spec import Spec

__all__ = ["AnyAdmission", "AnyInit", "AtLeast", "Cache", "Chance", "Constant", "Normal", "Segment", "Table", "Uniform"]


T = TypeVar("T")
HBM_BUCKET = 128  # rows in GPU memory come in whole ones
HBM_DIM = 1024  # floats of a row there, at most


class Uniform(Spec):
    """Draws first values uniformly from [-bound, bound).

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=8, init=hr.Uniform(bound=0.05)).init.bound
        0.05
    """

    name: Literal["uniform"] = "uniform"
    bound: float = Field(default=0.01, ge=0, le=1e30)
    scaled: bool = False  # times 1 / sqrt(dim)


class Normal(Spec):
    """Draws first values from a normal distribution with mean 0.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=8, init=hr.Normal(std=0.1)).init.std
        0.1
    """

    name: Literal["normal"] = "normal"
    std: float = Field(default=0.01, ge=0, le=1e30)
    scaled: bool = False  # times 1 / sqrt(dim)


class Constant(Spec):
    """Sets all first values to the same number.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=8, init=hr.Constant(value=0.5)).init.value
        0.5
    """

    name: Literal["constant"] = "constant"
    value: float = Field(default=0.0, ge=-1e30, le=1e30)
    scaled: bool = False  # times 1 / sqrt(dim)


AnyInit = Annotated[Uniform | Normal | Constant, Field(discriminator="name")]
EvictionPolicy = Literal["lru", "lfu", "refuse"]  # what a full table does with a new key


class Segment(Spec):
    """Keeps rows in a named file that outlasts the process: `<directory>/hotrow-<run>-<table>.rows`.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=8, segment=hr.Segment(run="ads", keep=True)).segment.run
        'ads'
    """

    run: str
    directory: Path | None = None  # None: /dev/shm; with huge: the first mount of hugetlbfs
    keep: bool = False  # a clean exit leaves the file
    huge: bool = False  # the directory is on hugetlbfs

    @field_validator("run")
    @classmethod
    def _run_fits_a_file_name(cls, value: str) -> str:
        if not fits_file_name(value):
            raise ValueError(f"is a part of the segment's file name: use {FILE_NAME_RULE}")
        return value


class Cache(Spec):
    """Keeps rows on the workers that use them (Hybrid, Async), at most `staleness` updates ahead or behind.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=8, cache=hr.Cache(capacity="1GB", staleness=10)).cache.policy
        'lru'
    """

    capacity: WholeOrSize  # of each worker: rows, or a text: bytes, everything counted
    staleness: Whole = Field(default=10, ge=0, le=2**31)  # updates of a row
    policy: Literal["lru", "lfu", "light_lfu", "ahead"] = "lru"  # which row is evicted
    hot: Whole = Field(default=10, ge=1, le=4095)  # light_lfu: a row that was seen so often is not counted any more
    window: Whole = Field(default=4, ge=1, le=64)  # ahead: batches whose ids are known before they are looked up
    clock: Literal["max", "additive"] = "max"  # how updates that workers make at the same time count
    workers: Whole | None = Field(default=None, ge=1, le=65_536)  # that Adagrad expects to update a row; None: all
    memory: Literal["auto", "host"] = "auto"  # that has the rows; auto: that of a GPU, where a trainer has one


def rows_of_gpu(value: Any) -> int | str:
    """Check hbm: "auto", rows or a size; None becomes 0."""
    if value is None or value == 0:
        return 0
    if value == "auto":
        return "auto"
    rows = whole_or_size(value)
    if isinstance(rows, int) and rows < HBM_BUCKET:
        raise ValueError(f"must be {HBM_BUCKET} rows, one bucket, or more; 0 is for none")
    return rows


class Table(Spec):
    """Describes one embedding table. A row's first value depends only on (seed, name, key).

    Example:
        >>> import hotrow as hr
        >>> table = hr.Table(name="user", dim=16, optimizer=hr.Adagrad(lr=0.05), capacity=1_000_000)
        >>> table.policy
        'lru'
    """

    name: str = "default"
    dim: Whole = Field(gt=0, le=65_536)
    type: Literal["float32", "float16", "bfloat16"] = "float32"  # of the values; state is float32
    optimizer: AnyOptimizer = Adagrad()
    init: AnyInit = Uniform()
    seed: Whole = Field(default=0, ge=0, lt=2**64)
    clock: bool = False  # rows carry HET's clock
    last_seen: bool = False  # rows carry when they were last seen
    capacity: WholeOrSize | None = None  # rows, or a text: bytes, everything counted
    eviction: EvictionPolicy | None = None  # None with a capacity means "lru"
    path: Path | None = None  # directory on a local disk, for rows that memory has no room for
    disk: Size | None = Field(default=None, validate_default=True)  # bytes of their file, as "200GB"
    direct_io: bool = True  # reads and writes of it pass by the page cache
    disk_index: Literal["auto", "memory", "disk"] = "auto"  # of the rows in it; auto: in memory where capacity has room
    expiry: Whole | None = Field(default=None, ge=1, le=MOST)  # a row is removed after so many samples unseen
    admission: AnyAdmission | None = None
    default: float = Field(default=0.0, ge=-1e30, le=1e30)  # every element of the row that a key without one gets
    segment: Segment | None = None  # None: rows are in the memory of this process
    cache: Cache | None = None  # None: every lookup reads the table
    hbm: Annotated[int | str, BeforeValidator(rows_of_gpu)] = "auto"  # rows or a text, bytes, in GPU memory; 0: none

    @property
    def capacity_rows(self) -> int | None:
        """The capacity where it is given in rows."""
        return self.capacity if isinstance(self.capacity, int) else None

    @property
    def capacity_bytes(self) -> int | None:
        """The capacity where it is given in bytes."""
        return parse_bytes(self.capacity) if isinstance(self.capacity, str) else None

    @property
    def disk_bytes(self) -> int | None:
        """The size of the file for rows that leave memory."""
        return None if self.disk is None else parse_bytes(self.disk)

    @property
    def keeps_clock(self) -> bool:
        """Whether rows carry HET's clock."""
        return self.clock or self.cache is not None

    @property
    def policy(self) -> EvictionPolicy | None:
        """What happens at the capacity; None without one."""
        return None if self.capacity is None else self.eviction or "lru"

    @property
    def hbm_fault(self) -> str | None:
        """Why its rows cannot be in GPU memory, and what to change; None: they can."""
        return _hbm_fault({name: getattr(self, name) for name in type(self).model_fields})

    # Combinations that are refused. Each check is at the later of its fields, so that the earlier one is known; a field
    # that is missing from info.data has an error of its own.

    @field_validator("eviction")
    @classmethod
    def _eviction_needs_a_capacity(cls, value: EvictionPolicy | None, info: ValidationInfo) -> EvictionPolicy | None:
        if value is not None and info.data.get("capacity", 0) is None:
            raise ValueError("there is no capacity to keep: give capacity too, or leave eviction out")
        return value

    @field_validator("disk")
    @classmethod
    def _disk_takes_evicted_rows(cls, value: str | None, info: ValidationInfo) -> str | None:
        if not {"capacity", "eviction", "path"} <= info.data.keys():
            return value
        path = info.data["path"]
        if value is None and path is not None:
            raise ValueError(f"path={str(path)!r} is for rows on disk: give disk, its bytes, too, or leave path out")
        if value is not None and path is None:
            raise ValueError("needs a directory on a local disk: give path too")
        if value is not None and info.data["capacity"] is None:
            raise ValueError("takes the rows that memory has no room for: give capacity, the memory, too")
        if value is not None and info.data["eviction"] == "refuse":
            raise ValueError("eviction='refuse' evicts no row: take 'lru' or 'lfu', or leave disk out")
        return value

    @field_validator("admission")
    @classmethod
    def _admission_fits_the_capacity(cls, value: AnyAdmission | None, info: ValidationInfo) -> AnyAdmission | None:
        capacity = info.data.get("capacity")
        if not isinstance(value, AtLeast) or not isinstance(capacity, str):
            return value
        if value.filter_bytes is None:
            given = f"capacity={capacity!r} bounds the memory and exact counts have no bound"
            raise ValueError(f"{given}: give AtLeast a filter, or the capacity in rows")
        if value.filter_bytes >= parse_bytes(capacity):
            given = f"a filter of {value.filter_bytes:,} bytes leaves no room for rows in capacity={capacity!r}"
            raise ValueError(f"{given}: give a smaller filter or a larger capacity")
        return value

    @field_validator("default")
    @classmethod
    def _default_can_be_given(cls, value: float, info: ValidationInfo) -> float:
        known = "admission" in info.data and "eviction" in info.data
        if value != 0 and known and info.data["admission"] is None and info.data["eviction"] != "refuse":
            without = "no key would ever get it: every key is admitted"
            raise ValueError(f"{without}; give admission or eviction='refuse', or leave default out")
        return value

    @field_validator("segment", "disk")
    @classmethod
    def _name_fits_the_file_of_the_rows(cls, value: T, info: ValidationInfo) -> T:
        if value is not None and not fits_file_name(info.data.get("name", "unknown")):
            given = f"the table's name {info.data['name']!r} is a part of the file's name"
            raise ValueError(f"{given}: name the table with {FILE_NAME_RULE}")
        return value

    @field_validator("cache")
    @classmethod
    def _state_of_cached_rows_adds_up(cls, value: Cache | None, info: ValidationInfo) -> Cache | None:
        optimizer = info.data.get("optimizer")
        if value is None or optimizer is None:
            return value
        if optimizer.name not in ("sgd", "adagrad", "rowwise_adagrad"):
            reason = f"workers send changes of rows to be added up, and the state of {optimizer.name} does not add up"
            raise ValueError(f"{reason}: take SGD, Adagrad or RowwiseAdagrad, or leave cache out")
        swap = getattr(optimizer, "swap", None)
        if swap is not None and swap.floor is not None:
            reason = f"optimizer.swap.floor={swap.floor!r} holds for a whole moment, and workers send changes of it"
            raise ValueError(f"{reason}: leave the floor out, or cache")
        return value

    @field_validator("hbm")
    @classmethod
    def _rows_can_be_in_gpu_memory(cls, value: int | str, info: ValidationInfo) -> int | str:
        if value not in (0, "auto") and (fault := _hbm_fault(info.data)) is not None:
            raise ValueError(f"{fault}; or leave hbm out")
        return value


def _hbm_fault(fields: Mapping[str, Any]) -> str | None:
    """Of the fields of a table, as far as they are known."""
    dim, optimizer, capacity = fields.get("dim", 1), fields.get("optimizer"), fields.get("capacity")
    if fields.get("type", "float32") != "float32":
        return f"type={fields['type']!r}: rows in GPU memory are float32: take that"
    if dim > HBM_DIM:
        return f"dim={dim:,}: a row in GPU memory has at most {HBM_DIM:,} floats: take a smaller dim"
    if optimizer is not None and optimizer.name == "ftrl":
        return "optimizer 'ftrl' does not train rows in GPU memory: take another one"
    for name, what in (
        ("admission", "every id of a batch has a row in GPU memory"),
        ("expiry", "rows in GPU memory are not seen below it and would expire there"),
        ("last_seen", "rows in GPU memory are not seen below it"),
        ("segment", "rows in GPU memory reach a segment only with a checkpoint"),
        ("cache", "a cache is that of a cluster's worker, with its own copies of rows"),
    ):
        if fields.get(name):
            return f"{name} is set, and {what}: leave {name} out"
    if capacity is not None and fields.get("disk") is None:
        return f"capacity={capacity!r} would evict rows that GPU memory has: give disk too, or leave capacity out"
    return None
