"""A disk tier and a dict do the same, whatever the order of calls: writes, erasures, shadows, cuts, reopens."""

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disk_rows import EXTENT, as_keys, contents, make_rows, open_tier, stamps
from hotrow import Table
from hotrow.errors import DiskFullError
from hotrow.store.disk_cut import DiskCut

Result = TypeVar("Result")
INDEXES: dict[str, dict[str, Any]] = {"memory": {}, "disk": {"index": "disk", "index_cache": 4096}}  # one page of five
KEYS = 900  # twelve extents of rows
ENGINES = [("threads", True), ("threads", False), ("uring", True), ("uring", False)]


class Twins:
    """The tier, and what it must hold."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path, self.settings = path, settings
        self.tier = open_tier(path, **settings)
        self.rows: dict[int, int] = {}
        self.shadowed: set[int] = set()
        self.changed: set[int] | None = None  # since the last saved cut; None: there was none
        self.erased: set[int] = set()
        self.saved: int | None = None
        self.cut: tuple[DiskCut, dict[int, int], set[int], set[int]] | None = None
        self.stamp = 0
        self.index_reads = self.index_writes = 0  # of tiers that were closed

    def write(self, keys: list[int]) -> None:
        self.stamp += 1
        self.with_room(lambda: self.tier.write(make_rows(keys, self.stamp)))
        self.rows |= dict.fromkeys(keys, self.stamp)
        self.shadowed -= set(keys)
        if self.changed is not None:
            self.changed |= set(keys)

    def erase(self, keys: list[int]) -> None:
        gone = [key for key in keys if key in self.rows]
        assert self.with_room(lambda: self.tier.erase(as_keys(keys))) == len(gone)
        for key in gone:
            del self.rows[key]
        self.shadowed -= set(gone)
        if self.changed is not None:
            self.changed -= set(gone)
        self.erased |= set(gone)

    def shadow(self, keys: list[int]) -> None:
        self.tier.shadow(as_keys(keys))
        self.shadowed |= set(keys) & self.rows.keys()

    def read(self, keys: list[int]) -> None:
        rows, found = self.tier.read(as_keys(keys))
        assert found.tolist() == [key in self.rows for key in keys]
        assert list(stamps(rows).items()) == [(key, self.rows[key]) for key in keys if key in self.rows]
        assert self.tier.contains(as_keys(keys)).tolist() == found.tolist()
        visible = self.rows.keys() - self.shadowed
        rows, found = self.tier.read(as_keys(keys), shadowed=False)
        assert found.tolist() == [key in visible for key in keys]
        assert list(stamps(rows)) == [key for key in keys if key in visible]

    def begin_cut(self, of_changes: bool) -> None:
        if self.cut is not None:
            return
        of_changes = of_changes and self.saved is not None
        cut = self.tier.begin_cut(self.saved if of_changes else None)
        expected = self.visible()
        if of_changes:
            assert self.changed is not None
            expected = {key: stamp for key, stamp in expected.items() if key in self.changed}
            assert set(cut.removed.tolist()) == self.erased
        assert cut.count == len(expected)
        self.cut = cut, expected, self.changed or set(), self.erased
        self.changed, self.erased = set(), set()

    def end_cut(self, saved: bool) -> None:
        if self.cut is None:
            return
        cut, expected, changed, erased = self.cut
        found: dict[int, int] = {}
        while (rows := cut.rows(70)) is not None:
            found |= stamps(rows)
        assert found == expected
        cut.end(saved)
        self.cut = None
        if saved:
            self.saved = cut.number
        elif self.saved is None:
            self.changed = None
        else:
            assert self.changed is not None
            self.changed |= changed & self.rows.keys()
            self.erased |= erased

    def reopen(self) -> None:
        if self.cut is not None:
            self.cut[0].end(saved=False)
        found = self.tier.stats()
        self.index_reads += found.index_reads
        self.index_writes += found.index_writes
        self.tier.close(remove=False)
        self.tier = open_tier(self.path, **self.settings)
        assert self.tier.opened is not None
        assert (self.tier.opened.rows, self.tier.opened.torn) == (len(self.rows), 0)
        self.shadowed, self.changed, self.erased, self.saved, self.cut = set(), None, set(), None, None

    def with_room(self, call: Callable[[], Result]) -> Result:
        """A cut keeps extents from being used again: a call that finds no room changes nothing."""
        try:
            return call()
        except DiskFullError as full:
            assert "end the cut" in str(full)  # noqa: PT017
            self.check()
            self.end_cut(saved=False)
            return call()

    def visible(self) -> dict[int, int]:
        return {key: stamp for key, stamp in self.rows.items() if key not in self.shadowed}

    def check(self) -> None:
        assert self.tier.verify() == []
        assert (len(self.tier), self.tier.unshadowed) == (len(self.rows), len(self.visible()))
        assert contents(self.tier) == self.visible()


def play(twins: Twins, seed: int, calls: int) -> None:
    """`calls` calls drawn from a seed, each with a batch of keys of its own."""
    draw = random.Random(seed)
    for _ in range(calls):
        keys = draw.sample(range(KEYS), draw.choice([1, 20, 150, 400]))
        match draw.choices(range(9), [10, 4, 4, 6, 2, 3, 1, 1, 1])[0]:
            case 0:
                twins.write(keys)
            case 1:
                twins.erase(keys[:100])
            case 2:
                twins.shadow(keys[:100])
            case 3:
                twins.read(keys)
            case 4:
                twins.begin_cut(draw.random() < 0.7)
            case 5:
                twins.end_cut(draw.random() < 0.6)
            case 6:
                twins.tier.flush()
            case 7:
                twins.tier.compact()
            case 8:
                twins.reopen()
    twins.check()
    twins.reopen()
    twins.check()


@pytest.mark.parametrize("index", INDEXES)
@settings(max_examples=20)  # 0.3 s each
@given(seed=st.integers(0, 2**32), calls=st.integers(1, 60), extents=st.sampled_from([2, 5, 1000]))
def test_a_tier_holds_what_a_dict_holds(index: str, seed: int, calls: int, extents: int) -> None:
    with TemporaryDirectory() as folder:
        twins = Twins(Path(folder) / "rows", write_behind=extents * EXTENT, **INDEXES[index])
        play(twins, seed, calls)
        twins.tier.close(remove=True)


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(("io", "direct"), ENGINES)
def test_every_way_to_the_disk_gives_the_same_rows(io: str, direct: bool, index: str, tmp_path: Path) -> None:
    twins = Twins(tmp_path / "rows", io=io, direct=direct, threads=2, queue_depth=4, **INDEXES[index])
    assert (twins.tier.stats().io, twins.tier.stats().direct) == (io, direct)
    play(twins, 7, 250)
    for key in range(8):  # one page is needed at a time: the others leave
        twins.tier.write(make_rows([key], 1))
    found = twins.tier.stats()
    assert found.reads > 0
    assert found.read_wait_s > 0
    assert (twins.index_reads > 0) == (twins.index_writes > 0) == (index == "disk"), "pages left memory"
    twins.tier.close(remove=True)


@pytest.mark.parametrize("type", ["float16", "bfloat16"])
@pytest.mark.parametrize("dim", [1, 3, 16])
def test_narrow_rows_come_back_bit_by_bit(type: str, dim: int, tmp_path: Path) -> None:
    table = Table(dim=dim, type=type)
    tier = open_tier(tmp_path / "rows", table, dim=dim, state_dim=0)
    keys = range(64, 128)  # first values 0 to 63, and a stamp of at most 64: bfloat16 holds whole numbers to 256
    for stamp in range(1, 65):
        tier.write(make_rows(keys, stamp, dim, 0))
    tier.flush()
    rows, _ = tier.read(as_keys(keys))
    assert set(stamps(rows).values()) == {64}
    tier.close(remove=False)
    tier = open_tier(tmp_path / "rows", table, dim=dim, state_dim=0)
    rows, found = tier.read(as_keys(keys))
    assert found.all()
    assert set(stamps(rows).values()) == {64}
    tier.close(remove=True)
