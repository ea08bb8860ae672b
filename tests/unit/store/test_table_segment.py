"""A table whose rows live in a segment: what comes back, what is refused, and that no bytes in the file can bring the
process down."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotrow import Adagrad, ConfigError, Segment, Table, _native
from hotrow.errors import InputError, SegmentError
from hotrow.store import RamTier
from hotrow.store.segments import list_segments

KEYS = np.arange(1, 3001, dtype=np.uint64)


def table(directory: Path, *, keep: bool = True, **settings: Any) -> Table:
    return Table(**{"dim": 4, "segment": Segment(run="t", directory=directory, keep=keep), **settings})


def file_of(directory: Path) -> Path:
    return directory / "hotrow-t-default.rows"


def rows_of(tier: RamTier) -> dict[int, tuple[bytes, bytes, tuple[int, ...]]]:
    return {
        int(key): (chunk.values[i].tobytes(), chunk.state[i].tobytes(), tuple(int(f[i]) for f in chunk.fields.values()))
        for chunk in tier.export()
        for i, key in enumerate(chunk.keys)
    }


def filled(spec: Table) -> RamTier:
    tier = RamTier(spec, threads=2)
    for step in range(3):
        batch = tier.find_or_init(KEYS[step * 500 : step * 500 + 2000])
        tier.apply(batch, np.full((2000, 4), 0.25 + step, np.float32), step=step)
    return tier


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"type": "float16"},
        {"capacity": 2000},
        {"capacity": 2000, "eviction": "lfu"},
        {"capacity": 2500, "eviction": "refuse", "expiry": 10**6},
        {"clock": True, "last_seen": True, "dim": 3, "type": "bfloat16"},
    ],
)
def test_rows_come_back_whole_and_training_goes_on_with_the_same_bits(settings: dict[str, Any], tmp_path: Path) -> None:
    settings = {**settings, "dim": 4} if settings.get("dim") == 3 else settings
    spec = table(tmp_path, **settings)
    tier = filled(spec)
    before = rows_of(tier)
    order = [tier.eviction_order(p).tolist() for p in range(tier.partitions)] if spec.policy in ("lru", "lfu") else []
    tier.close()
    again = RamTier(spec, threads=2)
    assert again.attached is not None
    assert (again.attached.rows, again.attached.dropped) == (len(before), 0)
    assert again.attached.partly_applied == []
    assert again.verify() == []
    assert rows_of(again) == before
    if order:  # rows of one lookup share a tick, so their order among each other may differ
        assert [sorted(keys) for keys in order] == [
            sorted(again.eviction_order(p).tolist()) for p in range(again.partitions)
        ]
    other = filled(spec.model_copy(update={"segment": None}))
    for each in (again, other):
        each.apply(KEYS[1000:1500], np.full((500, 4), 0.5, np.float32), step=9)
    assert rows_of(again) == rows_of(other)
    new = np.arange(10_000, 10_400, dtype=np.uint64)
    again.find_or_init(new)
    assert again.verify() == []
    again.close()


def test_the_order_of_eviction_comes_back_by_the_time_rows_were_seen(tmp_path: Path) -> None:
    spec = table(tmp_path, capacity=400)
    tier = RamTier(spec, partitions=1)
    for key in KEYS[:400][::-1]:
        tier.find_or_init(np.array([key]))
    expected = tier.eviction_order().tolist()
    assert expected == KEYS[:400][::-1].tolist()
    tier.close()
    again = RamTier(spec, partitions=1)
    assert again.eviction_order().tolist() == expected
    again.close()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dim": 8}, "dim"),
        ({"type": "float16"}, "type"),
        ({"optimizer": Adagrad(eps=1e-3)}, "optimizer"),
        ({"seed": 7}, "seed"),
        ({"capacity": 5000}, "capacity_rows"),
        ({"clock": True}, "fields"),
    ],
)
def test_a_table_that_differs_is_told_in_what_and_nothing_is_lost(
    change: dict[str, Any], field: str, tmp_path: Path
) -> None:
    tier = filled(table(tmp_path))
    before = rows_of(tier)
    tier.close()
    with pytest.raises(SegmentError, match=field):
        RamTier(table(tmp_path, keep=False, **change))
    again = RamTier(table(tmp_path, optimizer=Adagrad(lr=0.9)))  # what shapes no row may differ
    assert rows_of(again) == before
    again.close()


def test_a_second_owner_is_refused_and_a_clean_end_leaves_nothing(tmp_path: Path) -> None:
    spec = table(tmp_path, keep=False)
    tier = filled(spec)
    with pytest.raises(SegmentError, match="in use"):
        RamTier(spec)
    assert len(tier) == 3000
    tier.close()
    assert list_segments(tmp_path) == []
    with pytest.raises(InputError, match="closed"):
        len(tier)
    collected = filled(spec)
    del collected
    assert list_segments(tmp_path) == []


@pytest.mark.parametrize(
    ("ending", "files"), [("pass", 0), ("raise SystemExit(3)", 0), ("del tier", 0), ("raise RuntimeError('x')", 1)]
)
def test_the_end_of_the_program_removes_the_segment_unless_it_ends_by_an_error(
    ending: str, files: int, tmp_path: Path
) -> None:
    program = (
        "import sys, numpy as np, hotrow as hr; from hotrow.store import RamTier\n"
        "tier = RamTier(hr.Table(dim=4, segment=hr.Segment(run='t', directory=sys.argv[1])))\n"
        "tier.find_or_init(np.arange(10, dtype=np.uint64))\n" + ending
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, capture_output=True)
    assert len(list(tmp_path.iterdir())) == files


def test_closing_can_leave_the_rows_to_the_next(tmp_path: Path) -> None:
    spec = table(tmp_path, keep=False)
    filled(spec).close(leave=True)
    again = RamTier(spec)
    assert len(again) == 3000
    again.close()
    assert list_segments(tmp_path) == []


def test_an_attach_that_fails_leaves_the_file(tmp_path: Path) -> None:
    filled(table(tmp_path)).close()
    data = bytearray(file_of(tmp_path).read_bytes())
    first = 528_384  # where the pieces begin: docs/segments.md
    tag = data[first : first + 64]
    numbers = np.frombuffer(bytes(tag), np.uint32).copy()
    whole = file_of(tmp_path).read_bytes()
    changed = False
    for place in range(16):  # whatever number is changed, the file must stay
        damaged = bytearray(whole)
        numbers_now = numbers.copy()
        numbers_now[place] ^= 1
        damaged[first : first + 64] = numbers_now.tobytes()
        file_of(tmp_path).write_bytes(damaged)
        try:
            RamTier(table(tmp_path, keep=False)).close(leave=True)
        except SegmentError:
            changed = True
        assert file_of(tmp_path).read_bytes()[:8] == b"hotrowsg"
    assert changed


def test_rows_in_another_order_than_they_were_made_are_damage_that_costs_nothing(tmp_path: Path) -> None:
    spec = table(tmp_path, keep=False)
    tier = RamTier(spec)
    identity = list(list_segments(tmp_path)[0].identity.items())
    tier.close()
    segment = _native.Segment(str(file_of(tmp_path)), identity, False, True)
    segment.allocate(0, 64, 64, 64 * 64)  # the rows of a partition begin at 0
    segment.close()
    with pytest.raises(SegmentError, match="partition 0 from row 64"):
        RamTier(spec)
    assert file_of(tmp_path).exists()


def test_rows_whose_texts_had_another_hash_are_refused_and_kept(tmp_path: Path) -> None:
    spec = table(tmp_path, keep=False)
    tier = RamTier(spec)
    identity = [field for field in list_segments(tmp_path)[0].identity.items() if field[0] != "string_hash"]
    tier.close()
    _native.Segment(str(file_of(tmp_path)), identity, False, True).close()  # as Hotrow wrote them before XXH64
    with pytest.raises(SegmentError, match="string_hash is not given there and xxh64 here"):
        RamTier(spec)
    assert file_of(tmp_path).exists()


def test_the_clock_of_expiry_goes_on_after_an_attach(tmp_path: Path) -> None:
    spec = table(tmp_path, expiry=100)
    tier = RamTier(spec)
    tier.find_or_init(KEYS[:10], samples=1000)
    tier.find_or_init(KEYS[:5], samples=1090)
    tier.close()
    again = RamTier(spec)
    assert again.samples == 1090
    assert again.find(KEYS[:10]).absent == 0
    assert again.expire(1101) == 5
    assert again.find(KEYS[:10]).absent == 5
    again.close()


def test_a_forked_child_neither_uses_nor_removes_the_segment(tmp_path: Path) -> None:
    tier = filled(table(tmp_path, keep=False))
    child = os.fork()
    if child == 0:
        try:
            len(tier)
        except InputError:
            tier.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert file_of(tmp_path).exists()
    assert len(tier) == 3000
    tier.close()


def test_pushes_are_told_apart_across_processes(tmp_path: Path) -> None:
    tier = RamTier(table(tmp_path))
    assert tier.pushes.newest == 0
    assert [tier.pushes.begin(grant) for grant in (1, 2, 1)] == ["fresh", "fresh", "partly"]
    tier.pushes.finish(1)
    assert tier.pushes.begin(1) == "done"
    tier.close()
    again = RamTier(table(tmp_path))
    assert again.pushes.newest == 2
    assert again.attached is not None
    assert again.attached.partly_applied == [2]
    assert [again.pushes.begin(grant) for grant in (1, 2, 3)] == ["done", "partly", "fresh"]
    with pytest.raises(InputError, match="begin"):
        again.pushes.finish(1)
    assert again.pushes.begin(65_536 + 1) == "fresh"  # in the place of 1
    assert again.pushes.begin(2**62 - 1) == "fresh"
    assert again.pushes.newest == 2**62 - 1
    pushes = again.pushes
    again.close()
    with pytest.raises(InputError, match="closed"):
        pushes.begin(9)
    with pytest.raises(InputError, match="segment"):
        _ = RamTier(Table(dim=4)).pushes


def test_a_capacity_in_bytes_counts_the_file_too(tmp_path: Path) -> None:
    tier = RamTier(table(tmp_path, keep=False, capacity="40MB"))
    for first in range(0, 600_000, 50_000):
        tier.find_or_init(np.arange(first, first + 50_000, dtype=np.uint64))
    assert tier.stats().evicted > 0
    assert tier.stats().bytes <= 40_000_000
    tier.close()
    wide = RamTier(table(tmp_path, keep=False, dim=20_000, capacity="120MB"))  # large pieces leave gaps between them
    for first in range(0, 2000, 100):
        wide.find_or_init(np.arange(first, first + 100, dtype=np.uint64))
    assert wide.stats().evicted > 0
    assert wide.stats().bytes <= 120_000_000
    wide.close()
    with pytest.raises(ConfigError, match="capacity"):
        RamTier(table(tmp_path, capacity="2MB"))


DAMAGE = """
import random, shutil, sys
from pathlib import Path
import numpy as np
from hotrow import Segment, Table
from hotrow.errors import SegmentError
from hotrow.store import RamTier

good, directory, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
bytes_of_good = good.read_bytes()
generator = random.Random(seed)
attached = refused = 0
for turn in range(60):
    data = bytearray(bytes_of_good)
    used = len(data.rstrip(b"\\0"))
    for _ in range(generator.choice([1, 5, 100, 5000])):
        start = generator.randrange(600_000, used) if generator.random() < 0.7 else generator.randrange(used)
        data[start] = generator.randrange(256)
    if generator.random() < 0.2:
        data = data[: generator.randrange(len(data))]
    (directory / "hotrow-t-default.rows").write_bytes(data)
    (directory / "hotrow-t-default.rows").chmod(0o600)
    try:
        tier = RamTier(Table(dim=4, capacity=2000, eviction=sys.argv[4], segment=Segment(run="t", directory=directory)))
    except SegmentError:
        refused += 1
        continue
    attached += 1
    assert tier.verify() == [], tier.verify()
    tier.apply(tier.find_or_init(np.arange(5000, dtype=np.uint64)), np.ones((5000, 4), np.float32))
    assert tier.verify() == [], tier.verify()
    tier.close()
print(attached, refused)
assert attached > 5 and refused > 5
"""


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_no_bytes_in_the_file_bring_the_process_down(eviction: str, tmp_path: Path) -> None:
    filled(table(tmp_path, capacity=2000, eviction=eviction)).close()
    directory = tmp_path / "damaged"
    directory.mkdir()
    command = [sys.executable, "-c", DAMAGE, str(file_of(tmp_path)), str(directory), "1", eviction]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
