"""What the native core offers, typed. A test compares these names with the module's."""

from enum import Enum

import numpy as np
from numpy.typing import NDArray

def isa() -> str: ...

class Rule(Enum):
    sgd = 0
    adagrad = 1
    rowwise_adagrad = 2
    decayed_adagrad = 3
    adam = 4
    ftrl = 5

class Optimizer:
    rule: Rule
    lr: float
    l2: float
    decay: float
    clip: float
    eps: float
    eps_inside: bool
    initial: float
    rate: float
    beta1: float
    beta2: float
    correct_by_row: bool
    beta: float
    l1: float
    swap_period: int
    swap_decay: float
    swap_floor: float
    def __init__(self) -> None: ...

class Batch:
    def __len__(self) -> int: ...
    @property
    def unique(self) -> int: ...
    @property
    def partitions(self) -> int: ...
    @property
    def looked_up(self) -> bool: ...
    @property
    def counted(self) -> bool: ...
    def keys(self, out: NDArray[np.uint64]) -> None: ...
    def inverse(self, out: NDArray[np.uint32]) -> None: ...
    def absent_mask(self, out: NDArray[np.bool_]) -> None: ...

class Eviction(Enum):
    none = ...
    lru = ...
    lfu = ...
    refuse = ...

class AdmissionKind(Enum):
    everyone = ...
    at_least = ...
    chance = ...

class Admission:
    def __init__(self) -> None: ...
    kind: AdmissionKind
    count: int
    filter_bytes: int
    probability: float

class Life:
    def __init__(self) -> None: ...
    capacity_rows: int
    eviction: Eviction
    expiry: int
    admission: Admission
    default_value: float
    keep_evicted: bool
    gone_keys_max: int

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
    ) -> None: ...
    @property
    def fields(self) -> list[str]: ...
    @property
    def capacity_rows(self) -> int: ...
    def rows_within(self, bytes: int, in_segment: bool) -> int: ...

class RamTier:
    def __init__(self, spec: TableSpec, segment: tuple[str, list[tuple[str, str]], bool, bool] | None) -> None: ...
    def attach(self, threads: int) -> tuple[int, int]: ...
    @property
    def attached(self) -> bool: ...
    def close_segment(self) -> None: ...
    def leave_segment(self) -> None: ...
    @property
    def samples(self) -> int: ...
    @property
    def counts_occurrences(self) -> bool: ...
    def push_begin(self, grant: int) -> PushSeen: ...
    def push_finish(self, grant: int) -> None: ...
    def push_partly(self) -> list[int]: ...
    def push_newest(self) -> int: ...
    def __len__(self) -> int: ...
    @property
    def state_dim(self) -> int: ...
    def batch(self, keys: NDArray[np.uint64], threads: int) -> Batch: ...
    def find(self, batch: Batch, out: NDArray[np.float32] | None, per_unique: bool, threads: int) -> int: ...
    def find_or_init(
        self,
        batch: Batch,
        out: NDArray[np.float32] | None,
        per_unique: bool,
        seen: bool,
        samples: int | None,
        threads: int,
    ) -> int: ...
    def apply(
        self,
        batch: Batch,
        gradients: NDArray[np.float32],
        weights: NDArray[np.float32] | None,
        rows: NDArray[np.uint32] | None,
        per_unique: bool,
        step: int,
        samples: int,
        lr_scale: float,
        threads: int,
    ) -> tuple[int, int, int, int, int]: ...
    def add(
        self,
        batch: Batch,
        values: NDArray[np.float32],
        state: NDArray[np.float32] | None,
        clocks: NDArray[np.uint32] | None,
        step: int,
        samples: int,
        threads: int,
    ) -> tuple[int, int, int, int, int]: ...
    def put(
        self,
        batch: Batch,
        values: NDArray[np.float32],
        state: NDArray[np.float32] | None,
        fields: dict[str, NDArray[np.uint32]],
        threads: int,
    ) -> int: ...
    def read(self, batch: Batch, field: str, out: NDArray[np.uint32], threads: int) -> None: ...
    def touch(self, batch: Batch, samples: int | None, threads: int) -> int: ...
    def expire(self, samples: int | None, threads: int) -> int: ...
    def evicted_rows(self, batch: Batch) -> int: ...
    def evicted(
        self,
        batch: Batch,
        keys: NDArray[np.uint64],
        values: NDArray[np.float32],
        state: NDArray[np.float32],
        fields: dict[str, NDArray[np.uint32]],
    ) -> None: ...
    def take_gone_keys(self) -> tuple[bytes, bool]: ...
    def eviction_order(self, partition: int) -> bytes: ...
    def erase(self, batch: Batch, threads: int) -> int: ...
    def first_values(self, keys: NDArray[np.uint64], out: NDArray[np.float32], threads: int) -> None: ...
    def export_rows(
        self,
        cursor: int,
        keys: NDArray[np.uint64],
        values: NDArray[np.float32],
        state: NDArray[np.float32],
        fields: dict[str, NDArray[np.uint32]],
    ) -> tuple[int, int]: ...
    def stats(self) -> dict[str, int]: ...
    def verify(self) -> list[str]: ...

class RowField:
    def __init__(self, rows: int, row_bytes: int, threads: int) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    def read_seconds(self, rows: NDArray[np.int64], threads: int) -> float: ...

class CopyField:
    def __init__(self, bytes: int, threads: int) -> None: ...
    @property
    def bytes(self) -> int: ...
    def copy_seconds(self, threads: int) -> float: ...

class PushSeen(Enum):
    fresh = 0
    done = 1
    partly = 2
    forgotten = 3

class Segment:
    def __init__(self, path: str, identity: list[tuple[str, str]], huge: bool, keep: bool) -> None: ...
    @property
    def attached(self) -> bool: ...
    @property
    def bytes(self) -> int: ...
    def pieces(self) -> list[tuple[int, int, int, int]]: ...
    def piece(self, number: int) -> NDArray[np.uint8]: ...
    def allocate(self, partition: int, first_index: int, rows: int, bytes: int) -> NDArray[np.uint8]: ...
    def push_begin(self, grant: int) -> PushSeen: ...
    def push_finish(self, grant: int) -> None: ...
    def push_partly(self) -> list[int]: ...
    def close(self) -> None: ...
    def leave(self) -> None: ...

def inspect_segment(path: str) -> tuple[int, list[tuple[str, str]], bool, int, bool, str]: ...
def unique(
    keys: NDArray[np.uint64],
    unique_keys: NDArray[np.uint64],
    inverse: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    threads: int,
) -> int: ...
def shard_of(keys: NDArray[np.uint64], shards: int, out: NDArray[np.uint32], threads: int) -> None: ...
def sharded(
    keys: NDArray[np.uint64],
    shards: int,
    unique_keys: NDArray[np.uint64],
    bounds: NDArray[np.int64],
    inverse: NDArray[np.uint32],
    threads: int,
) -> int: ...
def pool(
    rows: NDArray[np.float32],
    inverse: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32] | None,
    mean: bool,
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def pool_backward(
    grad_out: NDArray[np.float32],
    inverse: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32] | None,
    mean: bool,
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def pool_weight_gradient(
    grad_out: NDArray[np.float32],
    rows: NDArray[np.float32],
    inverse: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def encode_rows(
    rows: NDArray[np.float32], half: NDArray[np.uint16], scale: NDArray[np.float32], threads: int
) -> None: ...
def decode_rows(
    half: NDArray[np.uint16], scale: NDArray[np.float32], rows: NDArray[np.float32], threads: int
) -> None: ...
def narrow(values: NDArray[np.float32], type: int, streams: NDArray[np.uint64], out: NDArray[np.uint16]) -> int: ...
def widen(values: NDArray[np.uint16], type: int, out: NDArray[np.float32]) -> None: ...
def compress_ids(
    keys: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    unique_keys: NDArray[np.uint64],
    counts: NDArray[np.uint32],
    samples: NDArray[np.uint16] | NDArray[np.uint32],
    threads: int,
) -> int: ...
def expand_ids(
    unique_keys: NDArray[np.uint64],
    counts: NDArray[np.uint32],
    samples: NDArray[np.uint16] | NDArray[np.uint32],
    keys: NDArray[np.uint64],
    offsets: NDArray[np.int64],
) -> None: ...
def hash_strings(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32] | NDArray[np.int64],
    validity: NDArray[np.uint8] | None,
    first: int,
    out: NDArray[np.uint64],
    seed: int,
    null: int,
    threads: int,
) -> int: ...
def string_ids(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32] | NDArray[np.int64],
    validity: NDArray[np.uint8] | None,
    first: int,
    out: NDArray[np.uint64],
    seed: int,
    null: int,
    threads: int,
) -> int: ...
