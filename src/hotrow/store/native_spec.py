"""A table's settings in the words of the native store."""

import json

from hotrow import _native
from hotrow.config import AnyInit, AtLeast, Cache, Chance, Constant, Normal, Table, Uniform
from hotrow.errors import ConfigError
from hotrow.optim.sparse import AnyOptimizer, shaping_settings
from hotrow.store.streams import first_value_stream

TYPES = ("float32", "float16", "bfloat16")
PARTITIONS = 32
CACHE_PARTITIONS = 16  # at most
STRING_HASH = "xxh64"  # how texts became the keys of a segment's rows: rows of another hash are other ids' rows
ROWS_PER_PARTITION = 256  # a small table has fewer partitions, so that its order of eviction is closer to one for all


def table_spec(
    table: Table, partitions: int | None, *, keep_evicted: bool, cached: Cache | None = None, threads: int = 1
) -> tuple[_native.TableSpec, int]:
    """The native spec, and the number of its partitions. `cached`: of the cache whose rows these are."""
    rows, most = table.capacity_rows or 0, PARTITIONS if cached is None else partitions_of_cache(threads)
    if table.capacity_bytes is not None:
        rows, partitions = _rows_within(table, table.capacity_bytes, partitions, most, cached)
    if partitions is None:
        partitions = _partitions_for(rows, most) if rows else most
    if rows and rows < partitions:
        raise ConfigError(
            f"Table.capacity={table.capacity!r}: holds {rows} rows, must be one or more for each of "
            f"{partitions} partitions: give more, or fewer partitions"
        )
    return _spec(table, rows, partitions, keep_evicted=keep_evicted, cached=cached), partitions


def row_fields(table: Table) -> tuple[str, ...]:
    """The counters of a row of the table, in memory and on disk."""
    rows = 0 if table.capacity is None else 1
    return tuple(_spec(table, rows, 1, keep_evicted=False, cached=None).fields)


def partitions_of_cache(threads: int) -> int:
    """Of a cache, which works on one batch at a time: partitions only keep the threads of a call busy.

    Each has an index and heads of lists of its own, and rows of a batch go to their places out of order: a lookup
    takes 10 % longer with 4 partitions than with one, and 25 % with 32.
    """
    return 1 if threads == 1 else min(CACHE_PARTITIONS, 1 << (2 * threads - 1).bit_length())


def identity(table: Table, spec: _native.TableSpec, partitions: int) -> list[tuple[str, str]]:
    """What must agree between a segment and the table that attaches to it, most telling first."""
    return [
        ("table", table.name),
        ("dim", str(table.dim)),
        ("type", table.type),
        ("optimizer", json.dumps(shaping_settings(table.optimizer.model_dump(mode="json")))),
        ("seed", str(table.seed)),
        ("init", json.dumps(table.init.model_dump(mode="json"))),
        ("fields", ",".join(spec.fields)),
        ("capacity_rows", str(spec.capacity_rows)),
        ("eviction", table.policy or "none"),
        ("expiry", str(table.expiry or 0)),
        ("partitions", str(partitions)),
        ("string_hash", STRING_HASH),
    ]


def _rows_within(table: Table, size: int, partitions: int | None, most: int, cached: Cache | None) -> tuple[int, int]:
    choices = [partitions] if partitions else [most >> n for n in range(most.bit_length())]
    in_segment = table.segment is not None
    for choice in choices:
        rows = _spec(table, choice, choice, keep_evicted=False, cached=cached).rows_within(size, in_segment)
        if rows >= choice * (1 if partitions else ROWS_PER_PARTITION):
            return rows, choice
    if rows < choice:
        of = "Table" if cached is None else "Cache"
        raise ConfigError(f"{of}.capacity={table.capacity!r}: not one row and what the table itself needs: give more")
    return rows, choice


def _partitions_for(rows: int, most: int) -> int:
    partitions = most
    while partitions > 1 and rows / partitions < ROWS_PER_PARTITION:
        partitions //= 2
    return partitions


def _spec(
    table: Table, capacity_rows: int, partitions: int, *, keep_evicted: bool, cached: Cache | None
) -> _native.TableSpec:
    kind, amount = _first_values(table.init, table.dim)
    return _native.TableSpec(
        dim=table.dim,
        type=TYPES.index(table.type),
        optimizer=_optimizer(table.optimizer, 1 if cached is None else cached.workers or 1),
        init_kind=kind,
        init_amount=amount,
        stream=first_value_stream(table.seed, table.name),
        life=_life(table, capacity_rows, keep_evicted, cached),
        clock=table.keeps_clock,
        last_seen=table.last_seen,
        partitions_log2=partitions.bit_length() - 1,
        keeps_base=cached is not None,
    )


def _life(table: Table, capacity_rows: int, keep_evicted: bool, cached: Cache | None) -> _native.Life:
    life = _native.Life()
    life.capacity_rows = capacity_rows
    life.eviction = getattr(_native.Eviction, table.policy or "none")
    if cached is not None:
        life.hot = cached.hot
        if table.capacity is not None:
            life.eviction = getattr(_native.Eviction, cached.policy)
    life.expiry = table.expiry or 0
    life.default_value = table.default
    life.keep_evicted = keep_evicted
    life.evicted_stay = keep_evicted and table.disk is not None  # in the tier below
    if table.capacity_bytes is not None:  # rows_within has left two bytes per row for it
        life.gone_keys_max = capacity_rows // 8
    admission = _native.Admission()
    match table.admission:
        case AtLeast() as rule:
            admission.kind, admission.count = _native.AdmissionKind.at_least, rule.count
            admission.filter_bytes = rule.filter_bytes or 0
        case Chance() as rule:
            admission.kind, admission.probability = _native.AdmissionKind.chance, rule.probability
    life.admission = admission
    return life


def _first_values(init: AnyInit, dim: int) -> tuple[int, float]:
    scale = dim**-0.5 if init.scaled else 1.0
    match init:
        case Uniform(bound=bound):
            return 0, bound * scale
        case Normal(std=std):
            return 1, std * scale
        case Constant(value=value):
            return 2, value * scale


def _optimizer(spec: AnyOptimizer, workers: int) -> _native.Optimizer:
    native = _native.Optimizer()
    native.workers = workers
    native.rule = getattr(_native.Rule, spec.name)
    settings = spec.model_dump(exclude={"name", "clip", "swap", "correction"})
    for name, value in settings.items():
        setattr(native, name, value)
    native.clip = spec.clip or 0.0
    native.correct_by_row = getattr(spec, "correction", "global") == "row"
    if (swap := getattr(spec, "swap", None)) is not None:
        native.swap_period, native.swap_decay, native.swap_floor = swap.period, swap.decay, swap.floor or 0.0
    return native
