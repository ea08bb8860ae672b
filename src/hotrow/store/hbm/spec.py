"""Settings of a table in GPU memory, as plain numbers: they need none of the packages that check a `hotrow.Table`."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from hotrow.errors import ConfigError
from hotrow.kernels.launch import DIM_MAX
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.streams import first_value_stream

Init = Literal["uniform", "normal", "constant"]
Eviction = Literal["lru", "lfu"]
KEPT_FIELDS = ("clock", "last_seen", "frequency")  # of a lower tier: rows carry them unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class HbmSpec:
    """One table: its rows, its optimizer, and how many rows stay in GPU memory.

    `HbmSpec.of(table, capacity)` takes the settings of a `hotrow.Table`, so that rows start with the values that they
    have in its other tiers. `group_slots` and `groups` make a bucket; the defaults fit the lines of a GPU's memory.

    Example:
        >>> from hotrow.kernels.update_rule import UpdateRule
        >>> from hotrow.store.hbm.spec import HbmSpec
        >>> HbmSpec(dim=64, capacity=1 << 20, rule=UpdateRule("adagrad", lr=0.05)).buckets
        8192
    """

    dim: int
    capacity: int  # rows; whole buckets of them are used
    rule: UpdateRule
    name: str = "default"
    seed: int = 0
    init: Init = "uniform"
    amount: float = 0.01  # bound, standard deviation or the constant
    eviction: Eviction = "lru"
    calls_per_tick: int = 16  # LRU: calls that count as one time, in which the age of a row is written once
    kept_fields: tuple[str, ...] = ()
    deterministic: bool = False  # duplicates are sorted: their gradients are summed in the same order each time
    track_changes: bool = False  # rows remember the version that a lower tier has
    group_slots: int = 32
    groups: int = 4

    def __post_init__(self) -> None:
        for field, value, allowed in (
            ("init", self.init, get_args(Init)),
            ("eviction", self.eviction, get_args(Eviction)),
            ("group_slots", self.group_slots, (1, 2, 4, 8, 16, 32)),
            ("groups", self.groups, (1, 2, 4, 8)),
        ):
            if value not in allowed:
                raise ConfigError(f"HbmSpec.{field}={value!r}: must be one of {', '.join(map(str, allowed))}")
        if not 1 <= self.dim <= DIM_MAX:
            raise ConfigError(f"HbmSpec.dim={self.dim:,}: must be from 1 to {DIM_MAX:,}, the floats of a tile")
        if self.calls_per_tick < 1:
            raise ConfigError(f"HbmSpec.calls_per_tick={self.calls_per_tick}: must be 1 or more")
        if not self.bucket_slots <= self.capacity < self.bucket_slots << 29:
            raise ConfigError(
                f"HbmSpec.capacity={self.capacity:,}: must be from {self.bucket_slots} rows, one bucket, to "
                f"{(self.bucket_slots << 29) - 1:,}"
            )
        if unknown := set(self.kept_fields) - set(KEPT_FIELDS):
            raise ConfigError(f"HbmSpec.kept_fields has {sorted(unknown)}: must be among {', '.join(KEPT_FIELDS)}")

    @classmethod
    def of(cls, table: Any, capacity: int, **settings: Any) -> "HbmSpec":
        """From a `hotrow.Table`, or anything with its attributes."""
        if table.type != "float32":
            raise ConfigError(f"Table.type={table.type!r}: rows in GPU memory are float32: leave type out")
        kinds = {"Uniform": ("uniform", "bound"), "Normal": ("normal", "std"), "Constant": ("constant", "value")}
        kind, amount = kinds[type(table.init).__name__]
        scale = table.dim**-0.5 if table.init.scaled else 1.0
        given = {
            "dim": table.dim,
            "capacity": capacity,
            "rule": UpdateRule.of(table.optimizer),
            "name": table.name,
            "seed": table.seed,
            "init": kind,
            "amount": getattr(table.init, amount) * scale,
        }
        return cls(**(given | settings))

    @property
    def bucket_slots(self) -> int:
        return self.group_slots * self.groups

    @property
    def buckets(self) -> int:
        return self.capacity // self.bucket_slots

    @property
    def slots(self) -> int:
        """Rows that fit."""
        return self.buckets * self.bucket_slots

    @property
    def state_dim(self) -> int:
        return self.rule.state_dim(self.dim)

    @property
    def row_bytes(self) -> int:
        """What a row takes in GPU memory: key, digest, age and lock (a bit) too."""
        return 4 * (self.dim + self.state_dim + len(self.fields) + self.track_changes) + 8 + 2 + 1

    @property
    def stream(self) -> int:
        """Of the first values, as the bits of an int64."""
        bits = first_value_stream(self.seed, self.name)
        return bits - 2**64 if bits >= 2**63 else bits

    @property
    def fields(self) -> tuple[str, ...]:
        """Counters of a row, named as in the other tiers."""
        period = ("period",) if self.rule.swap_period else ()
        updates = ("updates",) if self.rule.counts_updates else ()
        return ("version", "last_update", *period, *updates, *self.kept_fields)
