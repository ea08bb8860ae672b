# Generated from native/bind by `make stub`. Arrays are C-contiguous, aligned and in host memory.
"""
Native core of Hotrow. Private: use hotrow.store and hotrow.store.kernels.
"""

import enum
from collections.abc import Sequence
from typing import Any, overload

import numpy
from numpy.typing import NDArray

def isa() -> str:
    """The instruction set in use: plain, avx2 or avx512."""

def keep_freed_memory(bytes: int) -> bool:
    """
    Keep so much freed memory for the next allocations; False: the C library cannot.
    """

class Rule(enum.Enum):
    sgd = 0

    adagrad = 1

    rowwise_adagrad = 2

    decayed_adagrad = 3

    adam = 4

    ftrl = 5

class Optimizer:
    def __init__(self) -> None: ...
    @property
    def rule(self) -> Rule: ...
    @rule.setter
    def rule(self, arg: Rule, /) -> None: ...
    @property
    def lr(self) -> float: ...
    @lr.setter
    def lr(self, arg: float, /) -> None: ...
    @property
    def l2(self) -> float: ...
    @l2.setter
    def l2(self, arg: float, /) -> None: ...
    @property
    def decay(self) -> float: ...
    @decay.setter
    def decay(self, arg: float, /) -> None: ...
    @property
    def clip(self) -> float: ...
    @clip.setter
    def clip(self, arg: float, /) -> None: ...
    @property
    def eps(self) -> float: ...
    @eps.setter
    def eps(self, arg: float, /) -> None: ...
    @property
    def eps_inside(self) -> bool: ...
    @eps_inside.setter
    def eps_inside(self, arg: bool, /) -> None: ...
    @property
    def initial(self) -> float: ...
    @initial.setter
    def initial(self, arg: float, /) -> None: ...
    @property
    def rate(self) -> float: ...
    @rate.setter
    def rate(self, arg: float, /) -> None: ...
    @property
    def workers(self) -> float: ...
    @workers.setter
    def workers(self, arg: float, /) -> None: ...
    @property
    def beta1(self) -> float: ...
    @beta1.setter
    def beta1(self, arg: float, /) -> None: ...
    @property
    def beta2(self) -> float: ...
    @beta2.setter
    def beta2(self, arg: float, /) -> None: ...
    @property
    def correct_by_row(self) -> bool: ...
    @correct_by_row.setter
    def correct_by_row(self, arg: bool, /) -> None: ...
    @property
    def beta(self) -> float: ...
    @beta.setter
    def beta(self, arg: float, /) -> None: ...
    @property
    def l1(self) -> float: ...
    @l1.setter
    def l1(self, arg: float, /) -> None: ...
    @property
    def swap_period(self) -> int: ...
    @swap_period.setter
    def swap_period(self, arg: int, /) -> None: ...
    @property
    def swap_decay(self) -> float: ...
    @swap_decay.setter
    def swap_decay(self, arg: float, /) -> None: ...
    @property
    def swap_floor(self) -> float: ...
    @swap_floor.setter
    def swap_floor(self, arg: float, /) -> None: ...

class Eviction(enum.Enum):
    none = 0

    lru = 1

    lfu = 2

    refuse = 3

    light_lfu = 4

    ahead = 5

class AdmissionKind(enum.Enum):
    everyone = 0

    at_least = 1

    chance = 2

class Admission:
    def __init__(self) -> None: ...
    @property
    def kind(self) -> AdmissionKind: ...
    @kind.setter
    def kind(self, arg: AdmissionKind, /) -> None: ...
    @property
    def count(self) -> int: ...
    @count.setter
    def count(self, arg: int, /) -> None: ...
    @property
    def filter_bytes(self) -> int: ...
    @filter_bytes.setter
    def filter_bytes(self, arg: int, /) -> None: ...
    @property
    def probability(self) -> float: ...
    @probability.setter
    def probability(self, arg: float, /) -> None: ...

class Life:
    def __init__(self) -> None: ...
    @property
    def capacity_rows(self) -> int: ...
    @capacity_rows.setter
    def capacity_rows(self, arg: int, /) -> None: ...
    @property
    def eviction(self) -> Eviction: ...
    @eviction.setter
    def eviction(self, arg: Eviction, /) -> None: ...
    @property
    def hot(self) -> int: ...
    @hot.setter
    def hot(self, arg: int, /) -> None: ...
    @property
    def expiry(self) -> int: ...
    @expiry.setter
    def expiry(self, arg: int, /) -> None: ...
    @property
    def admission(self) -> Admission: ...
    @admission.setter
    def admission(self, arg: Admission, /) -> None: ...
    @property
    def default_value(self) -> float: ...
    @default_value.setter
    def default_value(self, arg: float, /) -> None: ...
    @property
    def keep_evicted(self) -> bool: ...
    @keep_evicted.setter
    def keep_evicted(self, arg: bool, /) -> None: ...
    @property
    def evicted_stay(self) -> bool: ...
    @evicted_stay.setter
    def evicted_stay(self, arg: bool, /) -> None: ...
    @property
    def gone_keys_max(self) -> int: ...
    @gone_keys_max.setter
    def gone_keys_max(self, arg: int, /) -> None: ...

class TableSpec:
    def __init__(
        self,
        dim: int,
        type: int,
        optimizer: Optimizer,
        init_kind: int,
        init_amount: float,
        stream: int,
        life: Life,
        clock: bool,
        last_seen: bool,
        partitions_log2: int,
        keeps_base: bool = False,
    ) -> None: ...
    @property
    def fields(self) -> list[str]: ...
    @property
    def capacity_rows(self) -> int: ...
    def rows_within(self, bytes: int, in_segment: bool) -> int: ...

class Batch:
    def __len__(self) -> int: ...
    @property
    def unique(self) -> int: ...
    @property
    def partitions(self) -> int: ...
    @property
    def looked_up(self) -> bool: ...
    @property
    def without_room(self) -> int: ...
    @property
    def counted(self) -> bool: ...
    def keys(self, out: NDArray[numpy.uint64]) -> None: ...
    def inverse(self, out: NDArray[numpy.uint32]) -> None: ...
    def overlap(self, others: Sequence[Batch], out: NDArray[numpy.bool_], threads: int) -> None: ...
    def shared(self, other: Batch, mine: NDArray[numpy.bool_], theirs: NDArray[numpy.bool_], threads: int) -> None: ...
    def absent_mask(self, out: NDArray[numpy.bool_]) -> None: ...

class TableClock:
    pass

class RamTier:
    def __init__(self, spec: TableSpec, segment: tuple[str, Sequence[tuple[str, str]], bool, bool] | None) -> None: ...
    @property
    def samples(self) -> int: ...
    def clock(self) -> TableClock: ...
    def restore_clock(self, clock: TableClock) -> None: ...
    def __len__(self) -> int: ...
    @property
    def counts_occurrences(self) -> bool: ...
    @property
    def state_dim(self) -> int: ...
    def batch(self, keys: NDArray[numpy.uint64], threads: int) -> Batch: ...
    def find(self, batch: Batch, out: NDArray[numpy.float32] | None, per_unique: bool, threads: int) -> int: ...
    def find_or_init(
        self,
        batch: Batch,
        out: NDArray[numpy.float32] | None,
        per_unique: bool,
        seen: bool,
        samples: int | None,
        pinned: Sequence[Batch],
        threads: int,
    ) -> int: ...
    def read_rows(
        self,
        batch: Batch,
        out: NDArray[numpy.float32],
        per_unique: bool,
        only: NDArray[numpy.bool_] | None,
        as_found: bool,
        threads: int,
    ) -> None: ...
    def apply(
        self,
        batch: Batch,
        gradients: NDArray[numpy.float32],
        weights: NDArray[numpy.float32] | None,
        rows: NDArray[numpy.uint32] | None,
        per_unique: bool,
        step: int,
        samples: int,
        lr_scale: float,
        only: NDArray[numpy.bool_] | None,
        as_found: bool,
        threads: int,
    ) -> tuple[int, int, int, int, int]: ...
    def add(
        self,
        batch: Batch,
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32] | None,
        clocks: NDArray[numpy.uint32] | None,
        step: int,
        samples: int,
        threads: int,
    ) -> tuple[int, int, int, int, int]: ...
    def reserve(self, rows: int, threads: int) -> None: ...
    def put(
        self,
        batch: Batch,
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32] | None,
        fields: dict[str, NDArray[numpy.uint32]],
        pinned: Sequence[Batch],
        threads: int,
    ) -> int: ...
    def put_parts(
        self,
        parts: Sequence[
            tuple[
                NDArray[numpy.uint64],
                NDArray[numpy.float32],
                NDArray[numpy.float32] | None,
                dict[str, NDArray[numpy.uint32]],
            ]
        ],
        threads: int,
    ) -> int: ...
    def read(self, batch: Batch, field: str, out: NDArray[numpy.uint32], threads: int) -> None: ...
    def touch(self, batch: Batch, samples: int | None, threads: int) -> int: ...
    def expire(self, samples: int | None, threads: int) -> int: ...
    def read_columns(
        self,
        batch: Batch,
        keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        fields: dict[str, NDArray[numpy.uint32]],
        threads: int,
    ) -> None: ...
    def preview_evictions(
        self, batch: Batch, lookup: bool, seen: bool, samples: int | None, pinned: Sequence[Batch], threads: int
    ) -> int: ...
    def evicted_rows(self, batch: Batch) -> int: ...
    def evicted(
        self,
        batch: Batch,
        keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        fields: dict[str, NDArray[numpy.uint32]],
    ) -> None: ...
    def take_gone_keys(self) -> tuple[bytes, bool]: ...
    def eviction_order(self, partition: int) -> bytes: ...
    def erase(self, batch: Batch, threads: int) -> int: ...
    def first_values(self, keys: NDArray[numpy.uint64], out: NDArray[numpy.float32], threads: int) -> None: ...
    def export_rows(
        self,
        cursor: int,
        keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        fields: dict[str, NDArray[numpy.uint32]],
    ) -> tuple[int, int]: ...
    def stats(self) -> dict[str, int]: ...
    def verify(self) -> list[str]: ...
    def attach(self, threads: int) -> tuple[int, int]: ...
    @property
    def attached(self) -> bool: ...
    def leave_segment(self) -> None: ...
    def close_segment(self) -> None: ...
    def push_begin(self, grant: int) -> PushSeen: ...
    def push_finish(self, grant: int) -> None: ...
    def push_discard(self, grant: int) -> PushSeen: ...
    def push_find(self, grant: int) -> PushSeen: ...
    def push_partly(self) -> list[int]: ...
    def push_newest(self) -> int: ...
    def track_changes(self, on: bool) -> None: ...
    def begin_cut(self, changed_only: bool) -> tuple[int, int, int]: ...
    def cut_rows(
        self,
        keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        fields: dict[str, NDArray[numpy.uint32]],
    ) -> int: ...
    def cut_removed(self) -> bytes: ...
    def cut_waiting(self, partition: int) -> tuple[bytes, bytes]: ...
    def cut_filter(self, partition: int) -> bytes: ...
    def cut_copied_bytes(self) -> int: ...
    def end_cut(self, saved: bool) -> None: ...
    def forget_waiting(self) -> None: ...
    def restore_waiting(self, keys: NDArray[numpy.uint64], counts: NDArray[numpy.uint32]) -> None: ...
    @property
    def filter_bytes(self) -> int: ...
    def restore_filter(self, partition: int, filter: NDArray[numpy.uint8]) -> None: ...
    def batch_of_distinct(self, keys: NDArray[numpy.uint64]) -> Batch: ...
    def find_places(
        self,
        batch: Batch,
        use: int,
        staleness: int,
        keys: NDArray[numpy.uint64],
        clocks: NDArray[numpy.uint32],
        uniques: NDArray[numpy.uint32],
        threads: int,
    ) -> tuple[int, int, int, int, int]: ...
    def make_places(
        self,
        batch: Batch,
        use: int,
        pinned: Sequence[Batch],
        keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        clocks: NDArray[numpy.uint32],
        updates: NDArray[numpy.uint32],
        periods: NDArray[numpy.uint32],
        slots: NDArray[numpy.int64] | None,
        threads: int,
    ) -> tuple[int, int]: ...
    def place_slots(
        self,
        batch: Batch,
        uniques: NDArray[numpy.uint32],
        slots: NDArray[numpy.int64],
        versions: NDArray[numpy.uint32],
        threads: int,
    ) -> None: ...
    def read_placed(self, batch: Batch, out: NDArray[numpy.float32], otherwise: float, threads: int) -> int: ...
    def announce(self, batch: Batch, threads: int) -> int: ...
    def withdraw(self, batch: Batch, use: int, threads: int) -> None: ...
    def take_changes(
        self,
        batch: Batch,
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        clocks: NDArray[numpy.uint32],
        updates: NDArray[numpy.uint32],
        periods: NDArray[numpy.uint32],
        changed: NDArray[numpy.bool_],
        slots: NDArray[numpy.int64] | None,
        threads: int,
    ) -> None: ...
    def fill(
        self,
        batch: Batch,
        uniques: NDArray[numpy.uint32],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        clocks: NDArray[numpy.uint32],
        periods: NDArray[numpy.uint32] | None,
        threads: int,
    ) -> None: ...
    @property
    def changed_rows(self) -> int: ...
    def changed_keys(self) -> bytes: ...

def unique(
    keys: NDArray[numpy.uint64],
    unique_keys: NDArray[numpy.uint64],
    inverse: NDArray[numpy.uint32],
    counts: NDArray[numpy.uint32],
    threads: int,
) -> int:
    """
    Deduplicate in order of first occurrence; return the number of unique keys.
    """

def pool(
    rows: NDArray[numpy.float32],
    inverse: NDArray[numpy.uint32],
    offsets: NDArray[numpy.int64],
    weights: NDArray[numpy.float32] | None,
    mean: bool,
    out: NDArray[numpy.float32],
    threads: int,
) -> None:
    """Sum or mean of each bag's rows."""

def pool_backward(
    grad_out: NDArray[numpy.float32],
    inverse: NDArray[numpy.uint32],
    offsets: NDArray[numpy.int64],
    weights: NDArray[numpy.float32] | None,
    mean: bool,
    out: NDArray[numpy.float32],
    threads: int,
) -> None:
    """Gradient of pool by its rows."""

def pool_weight_gradient(
    grad_out: NDArray[numpy.float32],
    rows: NDArray[numpy.float32],
    inverse: NDArray[numpy.uint32],
    offsets: NDArray[numpy.int64],
    out: NDArray[numpy.float32],
    threads: int,
) -> None:
    """Gradient of pool by its weights."""

def encode_rows(
    rows: NDArray[numpy.float32], half: NDArray[numpy.uint16], scale: NDArray[numpy.float32], threads: int
) -> None:
    """float32 rows to scaled fp16."""

def decode_rows(
    half: NDArray[numpy.uint16], scale: NDArray[numpy.float32], rows: NDArray[numpy.float32], threads: int
) -> None:
    """Scaled fp16 to float32 rows."""

def narrow(
    values: NDArray[numpy.float32], type: int, streams: NDArray[numpy.uint64], out: NDArray[numpy.uint16]
) -> int:
    """
    Round rows stochastically to float16 (1) or bfloat16 (2); return how many elements were too large.
    """

def widen(values: NDArray[numpy.uint16], type: int, out: NDArray[numpy.float32]) -> None:
    """float16 (1) or bfloat16 (2) rows to float32, exactly."""

@overload
def compress_ids(
    keys: NDArray[numpy.uint64],
    offsets: NDArray[numpy.int64],
    unique_keys: NDArray[numpy.uint64],
    counts: NDArray[numpy.uint32],
    samples: NDArray[numpy.uint16],
    threads: int,
) -> int: ...
@overload
def compress_ids(
    keys: NDArray[numpy.uint64],
    offsets: NDArray[numpy.int64],
    unique_keys: NDArray[numpy.uint64],
    counts: NDArray[numpy.uint32],
    samples: NDArray[numpy.uint32],
    threads: int,
) -> int:
    """
    Each key once with the bags it occurs in; return the number of unique keys.
    """

@overload
def expand_ids(
    unique_keys: NDArray[numpy.uint64],
    counts: NDArray[numpy.uint32],
    samples: NDArray[numpy.uint16],
    keys: NDArray[numpy.uint64],
    offsets: NDArray[numpy.int64],
) -> None: ...
@overload
def expand_ids(
    unique_keys: NDArray[numpy.uint64],
    counts: NDArray[numpy.uint32],
    samples: NDArray[numpy.uint32],
    keys: NDArray[numpy.uint64],
    offsets: NDArray[numpy.int64],
) -> None:
    """The bags that compress_ids was given."""

@overload
def hash_strings(
    data: NDArray[numpy.uint8],
    offsets: NDArray[numpy.int32],
    validity: NDArray[numpy.uint8] | None,
    first: int,
    out: NDArray[numpy.uint64],
    seed: int,
    null: int,
    threads: int,
) -> int: ...
@overload
def hash_strings(
    data: NDArray[numpy.uint8],
    offsets: NDArray[numpy.int64],
    validity: NDArray[numpy.uint8] | None,
    first: int,
    out: NDArray[numpy.uint64],
    seed: int,
    null: int,
    threads: int,
) -> int:
    """
    Hash out.size strings of an Arrow column from `first` on; return how many are null.
    """

@overload
def string_ids(
    data: NDArray[numpy.uint8],
    offsets: NDArray[numpy.int32],
    validity: NDArray[numpy.uint8] | None,
    first: int,
    out: NDArray[numpy.uint64],
    seed: int,
    null: int,
    threads: int,
) -> int: ...
@overload
def string_ids(
    data: NDArray[numpy.uint8],
    offsets: NDArray[numpy.int64],
    validity: NDArray[numpy.uint8] | None,
    first: int,
    out: NDArray[numpy.uint64],
    seed: int,
    null: int,
    threads: int,
) -> int:
    """
    The same, but a canonical whole number that fits 64 bits stands for itself.
    """

def shard_of(keys: NDArray[numpy.uint64], shards: int, out: NDArray[numpy.uint32], threads: int) -> None:
    """The shard of each key."""

def sharded(
    keys: NDArray[numpy.uint64],
    shards: int,
    unique_keys: NDArray[numpy.uint64],
    bounds: NDArray[numpy.int64],
    inverse: NDArray[numpy.uint32],
    threads: int,
) -> int:
    """
    Deduplicate, grouped by shard and then by first occurrence; return the number of unique keys.
    """

class RowField:
    """Plain rows in huge pages, to be read at random."""

    def __init__(self, rows: int, row_bytes: int, threads: int) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    def read_seconds(self, rows: NDArray[numpy.int64], threads: int) -> float:
        """
        Read each of these int64 row numbers' rows in order; return the seconds.
        """

class CopyField:
    """A straight run of memory and room for its copy."""

    def __init__(self, bytes: int, threads: int) -> None: ...
    @property
    def bytes(self) -> int: ...
    def copy_seconds(self, threads: int) -> float:
        """Copy all bytes once; return the seconds."""

def bind_pool(sets: Sequence[Sequence[int]]) -> int:
    """
    Bind the kept threads of the store to these sets of processors in turn; return 0 or an errno.
    """

def interleave_memory(nodes: Sequence[int]) -> int:
    """
    Interleave pages of tables that grow from now on over NUMA nodes, none: off; return 0 or an errno.
    """

def interleave_counts() -> tuple[int, int]:
    """Blocks of memory that are interleaved, and that the system refused."""

class PushSeen(enum.Enum):
    fresh = 0

    done = 1

    partly = 2

    forgotten = 3

    discarded = 4

class Segment:
    def __init__(self, path: str, identity: Sequence[tuple[str, str]], huge: bool, keep: bool) -> None: ...
    @property
    def attached(self) -> bool: ...
    @property
    def bytes(self) -> int: ...
    def pieces(self) -> list[tuple[int, int, int, int]]: ...
    def piece(self, number: int) -> NDArray[numpy.uint8]: ...
    def allocate(self, partition: int, first_index: int, rows: int, bytes: int) -> NDArray[numpy.uint8]: ...
    def push_begin(self, grant: int) -> PushSeen: ...
    def push_finish(self, grant: int) -> None: ...
    def push_partly(self) -> list[int]: ...
    def close(self) -> None: ...
    def leave(self) -> None: ...

def inspect_segment(path: str) -> tuple[int, list[tuple[str, str]], bool, int, bool, str]: ...
def stream_copy(data: NDArray[numpy.uint8], out: NDArray[numpy.uint8]) -> None:
    """Copy bytes past the caches."""

class DiskSnapshot:
    @property
    def rows(self) -> int: ...
    def next(
        self,
        keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        fields: Sequence[NDArray[numpy.uint32]],
    ) -> int: ...

class DiskCut:
    @property
    def number(self) -> int: ...
    @property
    def rows(self) -> int: ...
    def removed(self) -> bytes: ...
    def next(
        self,
        keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        fields: Sequence[NDArray[numpy.uint32]],
    ) -> int: ...
    def end(self, saved: bool) -> None: ...

class DiskTier:
    def __init__(
        self,
        path: str,
        identity: Sequence[tuple[str, str]],
        dim: int,
        state_dim: int,
        type: int,
        fields: int,
        capacity_bytes: int,
        threads: int,
        direct: bool,
        io: int,
        depth: int,
        write_behind: int,
        staging: str,
        index_cache: int | None,
    ) -> None: ...
    @property
    def opened(self) -> tuple[int, int, int, float] | None: ...
    def __len__(self) -> int: ...
    @property
    def unshadowed(self) -> int: ...
    @property
    def room(self) -> int: ...
    def contains(self, keys: NDArray[numpy.uint64], shadowed: bool, out: NDArray[numpy.bool_]) -> None: ...
    def read(
        self,
        keys: NDArray[numpy.uint64],
        shadowed: bool,
        found: NDArray[numpy.bool_],
        out_keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        fields: Sequence[NDArray[numpy.uint32]],
    ) -> int: ...
    def write(
        self,
        keys: NDArray[numpy.uint64],
        values: NDArray[numpy.float32],
        state: NDArray[numpy.float32],
        fields: Sequence[NDArray[numpy.uint32]],
    ) -> None: ...
    def shadow(self, keys: NDArray[numpy.uint64]) -> None: ...
    def erase(self, keys: NDArray[numpy.uint64]) -> int: ...
    def flush(self) -> None: ...
    def compact(self) -> None: ...
    def verify(self) -> list[str]: ...
    def snapshot(self) -> DiskSnapshot: ...
    def begin_cut(self, since: int | None) -> DiskCut: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self, remove: bool) -> None: ...
