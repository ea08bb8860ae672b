"""What native code is given that it cannot use: a sentence with field, value and remedy, whoever calls."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotrow import FTRL, SGD, InputError, Table, _native
from hotrow.store import RamTier
from hotrow.store.kernels import pool, string_ids


def spec(**changes: Any) -> _native.TableSpec:
    life = _native.Life()
    for name in [name for name in changes if hasattr(life, name)]:
        setattr(life, name, changes.pop(name))
    settings = {
        "dim": 4,
        "type": 0,
        "optimizer": _native.Optimizer(),
        "init_kind": 2,
        "init_amount": 0.0,
        "stream": 1,
        "life": life,
        "clock": False,
        "last_seen": False,
        "partitions_log2": 0,
    }
    return _native.TableSpec(**{**settings, **changes})


@pytest.mark.parametrize("dim", [0, 65_537, 2**40, 2**62, 2**64 - 1])
def test_a_row_s_length_is_bounded(dim: int) -> None:
    with pytest.raises(ValueError, match=f"^dim={dim}: must be from 1 to 65536$"):
        spec(dim=dim)


def test_every_number_of_a_table_is_bounded() -> None:
    filtered = _native.Admission()
    filtered.kind, filtered.count, filtered.filter_bytes = _native.AdmissionKind.at_least, 2, 2**63
    for changes, told in (
        ({"type": 3}, "type=3: must be from 0 to 2"),
        ({"init_kind": -1}, "init_kind=-1: must be from 0 to 2"),
        ({"partitions_log2": 11}, "partitions_log2=11: must be from 0 to 10"),
        ({"expiry": 2**64 - 1}, "life.expiry=18446744073709551615: must be from 0 to 4611686018427387904"),
        (
            {"capacity_rows": 2**64 - 1, "eviction": _native.Eviction.lru},
            "life.capacity_rows=18446744073709551615: must",
        ),
        ({"admission": filtered}, "life.admission.filter_bytes=9223372036854775808: must be from 0 to 70368744177664"),
    ):
        with pytest.raises(ValueError, match=told):
            spec(**changes)
    spec(dim=65_536, expiry=2**62, capacity_rows=2**62, eviction=_native.Eviction.lru, partitions_log2=10)


@pytest.mark.parametrize("threads", [-5, 0, 1025, 2**31 - 1])
def test_every_call_of_a_table_checks_its_threads(threads: int) -> None:
    tier = _native.RamTier(spec(), None)
    batch, rows = tier.batch(np.arange(3, dtype=np.uint64), 1), np.zeros((3, 4), np.float32)
    numbers = np.zeros(3, np.uint32)
    for call in (
        lambda: tier.batch(np.arange(3, dtype=np.uint64), threads),
        lambda: tier.find(batch, None, False, threads),
        lambda: tier.find_or_init(batch, None, False, True, None, [], threads),
        lambda: tier.read_rows(batch, np.empty((3, 4), np.float32), False, None, False, threads),
        lambda: batch.overlap([], np.empty(batch.unique, np.bool_), threads),
        lambda: batch.shared(batch, np.empty(3, np.bool_), np.empty(3, np.bool_), threads),
        lambda: tier.apply(batch, rows, None, None, False, 0, 0, 1.0, None, False, threads),
        lambda: tier.add(batch, rows, None, None, 0, 0, threads),
        lambda: tier.put(batch, rows, None, {}, [], threads),
        lambda: tier.read(batch, "version", numbers, threads),
        lambda: tier.touch(batch, None, threads),
        lambda: tier.expire(None, threads),
        lambda: tier.erase(batch, threads),
        lambda: tier.first_values(np.arange(3, dtype=np.uint64), rows, threads),
        lambda: _native.RowField(1, 4, threads),
        lambda: _native.CopyField(1, threads),
    ):
        with pytest.raises(ValueError, match=f"^threads={threads}: must be from 1 to 1024$"):
            call()


def test_fields_for_benchmarks_are_bounded() -> None:
    with pytest.raises(ValueError, match=r"rows=4611686018427387904, row_bytes=8: together"):
        _native.RowField(2**62, 8, 1)
    with pytest.raises(ValueError, match=r"bytes=18446744073709551615: must be from 1 to 2\^46"):
        _native.CopyField(2**64 - 1, 1)


# Native code alone, in a process of its own: an abort or a limit on files is then no fault of the tests.
NATIVE = """
import importlib.util, resource, sys
import numpy as np

found = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(found)
found.loader.exec_module(native)


def table(dim, capacity_rows=0, segment=None):
    life = native.Life()
    if capacity_rows:
        life.capacity_rows, life.eviction, life.keep_evicted = capacity_rows, native.Eviction.lru, True
    spec = native.TableSpec(dim, 0, native.Optimizer(), 2, 0.0, 1, life, False, False, 0 if capacity_rows else 5)
    return native.RamTier(spec, segment)


def look_up(tier, keys, out=None, threads=1):
    batch = tier.batch(keys, threads)
    tier.find_or_init(batch, out, False, True, None, [], threads)
    return batch
"""


def run_native(program: str, *arguments: str) -> list[str]:
    """The lines that it prints."""
    command = [sys.executable, "-c", NATIVE + program, str(_native.__file__), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()


EVICTED = """
wide, narrow = table(64, capacity_rows=2), table(1, capacity_rows=2)
batch = look_up(wide, np.arange(5, dtype=np.uint64))
assert wide.evicted_rows(batch) == 3
room = 100
fields = {name: np.empty(room, np.uint32) for name in ("version", "last_update", "last_seen")}
columns = np.empty(room, np.uint64), np.empty((room, 1), np.float32), np.empty((room, 0), np.float32), fields
for call in (lambda: narrow.evicted_rows(batch), lambda: narrow.evicted(batch, *columns)):
    try:
        print(call())
    except ValueError as error:
        print(error)
"""


def test_rows_that_fell_out_of_another_table_are_refused() -> None:
    told = "evicted: the batch carries rows of another table: ask the table that it was given to"
    assert run_native(EVICTED) == [told, told]


def test_scalars_of_a_lookup_and_an_update_are_told_with_their_value() -> None:
    tier = RamTier(Table(dim=4, optimizer=SGD(lr=1.0)))
    keys, rows = np.arange(3, dtype=np.uint64), np.zeros((3, 4), np.float32)
    calls: list[tuple[Any, str]] = [
        (lambda: tier.find_or_init(keys, seen="x"), "seen='x': must be True or False"),  # type: ignore[arg-type]
        (lambda: tier.find_or_init(keys, seen=None), "seen=None: must be True or False"),  # type: ignore[arg-type]
        (lambda: tier.find_or_init(keys, samples="x"), "samples='x': must be a whole number"),  # type: ignore[arg-type]
        (lambda: tier.find_or_init(keys, per=["key"]), r"per=\['key'\]: must be 'key' or 'unique'"),  # type: ignore[arg-type]
        (lambda: tier.find(keys, per=None), "per=None: must be"),  # type: ignore[arg-type]
        (lambda: tier.apply(keys, rows, lr_scale="x"), "lr_scale='x': must be from 0 to 1e30"),  # type: ignore[arg-type]
        (lambda: tier.apply(keys, rows, lr_scale=None), "lr_scale=None: must be"),  # type: ignore[arg-type]
        (lambda: tier.apply(keys, rows, lr_scale=float("nan")), "lr_scale=nan: must be"),
        (lambda: tier.apply(keys, rows, step="x"), "step='x': must be a whole number"),  # type: ignore[arg-type]
        (lambda: tier.put(keys, rows, fields=[1]), "fields is a list: give a dict"),  # type: ignore[arg-type]
        (lambda: tier.read(keys, ["version"]), "carry only version"),  # type: ignore[arg-type]
        (lambda: pool(rows, keys.astype(np.uint32), np.array([0, 3]), mode=["sum"]), r"mode=\['sum'\]: must be"),  # type: ignore[arg-type]
        (lambda: string_ids(None, 0, text="x"), "text='x': must be True or False"),  # type: ignore[arg-type]
    ]
    for call, told in calls:
        with pytest.raises(InputError, match=told):
            call()
    assert len(tier) == 0
    tier.find_or_init(keys, seen=np.True_)  # type: ignore[arg-type]
    assert tier.apply(keys, rows, lr_scale=np.float64(0.5)).rows == 3
    with pytest.raises(InputError, match="leave it at 1"):
        RamTier(Table(dim=4, optimizer=FTRL())).apply(keys, rows, lr_scale=0.5)


FULL = """
tier = table(64, segment=(sys.argv[2], [], False, False))
keys = np.arange(1, 30_001, dtype=np.uint64)
look_up(tier, keys[:1000])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (6 << 20, hard))  # as a file system of 6 MB
try:
    look_up(tier, keys, threads=2)
except RuntimeError as error:  # hotrow.errors is not loaded
    print(error)
print(len(tier) - 1000)
assert tier.verify() == []
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
out = np.full((30_000, 64), np.nan, np.float32)
look_up(tier, keys, out)
assert len(tier) == 30_000 and tier.verify() == [] and not out.any()
"""


def test_a_full_segment_says_how_many_rows_were_made_and_takes_the_batch_again(tmp_path: Path) -> None:
    sentence, made = run_native(FULL, str(tmp_path / "a.rows"))
    assert int(made) > 0
    assert "no room for" in sentence
    assert sentence.endswith(
        f"; {made} new rows of this batch were made and stay, so give the same batch again once there is room"
    )
