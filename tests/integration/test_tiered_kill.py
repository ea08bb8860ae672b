"""A table in two tiers whose process is killed has all its rows as they were last, wherever they were on their way."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.store import RamTier, Rows
from hotrow.store.tiered import TieredTier

STEPS, KEYS, BATCH = 40, 3000, 150
MOMENTS = ("before the write", "after the write", "after the lookup", "after rows came up")
WAIT_S = 60.0
EXTENT, EXTENT_HEADER, SLOT = 65_536, 64, 64  # bytes, in the file of `table`


def table(folder: Path) -> hr.Table:
    segment = hr.Segment(run="killed", directory=folder)
    return hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.5), capacity=400, disk="8MB", path=folder, segment=segment)


def keys_of(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, KEYS, BATCH).astype(np.uint64)


def train(tier: RamTier, steps: int, done: Path | None = None, first: int = 0) -> None:
    """`done` gets a byte for each step that is complete."""
    for step in range(first, steps):
        gradients = np.random.default_rng(-step % 2**32).standard_normal((BATCH, 4)).astype(np.float32)
        plan = tier.find_or_init(keys_of(step), samples=step)
        tier.apply(plan, gradients, step=step, samples=step)
        if done is not None:
            with done.open("ab", buffering=0) as file:
                file.write(b".")


def rows_after(steps: int) -> Rows:
    tier = RamTier(hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.5)))
    train(tier, steps)
    found = tier.whole_rows(np.arange(KEYS, dtype=np.uint64))
    tier.close()
    return found


def same_rows(one: Rows, other: Rows) -> np.ndarray:
    """By key, whether version, value and state have the same bits, or neither has a row."""
    there = one.fields["version"] > 0
    values = (one.values == other.values).all(1) & (one.state == other.state).all(1)
    return np.asarray((one.fields["version"] == other.fields["version"]) & (values | ~there))


def half_updated(found: Rows, before: Rows, after: Rows) -> np.ndarray:
    """By key, whether some numbers are as before and some as after an update, which writes the version last."""
    parts = ((one.values, one.state) for one in (found, before, after))
    alike = [((now == early) | (now == late)).all(1) for now, early, late in zip(*parts, strict=True)]
    version = found.fields["version"]
    return np.asarray(np.logical_and.reduce(alike) & (version == before.fields["version"]) & (version > 0))


CHILD = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_tiered_kill
test_tiered_kill.run(Path(sys.argv[1]), sys.argv[3], int(sys.argv[4]))
"""


def run(folder: Path, moment: str, call: int) -> None:
    """In the process that is killed: at a call of that kind, or by somebody else."""
    tier = TieredTier(table(folder))
    calls = 0

    def killed_at(name: str, owner: object, *, before: bool) -> None:
        made = getattr(owner, name)

        def killing(*given: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            if before and calls == call:
                signal.raise_signal(signal.SIGKILL)
            result = made(*given, **more)
            if not before and calls == call:
                signal.raise_signal(signal.SIGKILL)
            return result

        setattr(owner, name, killing)

    match moment:
        case "before the write" | "after the write":
            killed_at("write", tier.disk, before=moment.startswith("before"))
        case "after the lookup":
            killed_at("find_or_init", RamTier, before=False)
        case "after rows came up":
            killed_at("_put_planned", tier, before=False)
        case "at the end":
            train(tier, STEPS)
            assert tier.disk.stats().staged_rows > 0
            signal.raise_signal(signal.SIGKILL)
        case "between erase's two tiers" | "between clear's two tiers":
            train(tier, STEPS)
            killed_at("erase", RamTier, before=False)
            killed_at("erase", tier.disk, before=False)
            killed_at("close", tier.disk, before=False)
            if "erase" in moment:
                tier.erase(np.arange(KEYS, dtype=np.uint64))
            else:
                tier.clear()
    train(tier, 100_000, folder / "done")


def start(folder: Path, moment: str, call: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(folder), str(Path(__file__).parent), moment, str(call)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def check_killed(child: subprocess.Popen[str]) -> None:
    _, said = child.communicate(timeout=WAIT_S)
    assert child.returncode == -signal.SIGKILL, said


def check_rows(folder: Path) -> None:
    """Rows are those after the last whole step; the step that was cut may have changed some of its own."""
    done = (folder / "done").stat().st_size
    before, after = rows_after(done), rows_after(done + 1)
    tier = TieredTier(table(folder))
    assert tier.attached is not None
    found = tier.whole_rows(np.arange(KEYS, dtype=np.uint64))
    cut = np.isin(found.keys, keys_of(done))
    made = cut & (found.fields["version"] == 1) & (before.fields["version"] == 0)
    wrong = ~(same_rows(found, before) | same_rows(found, after) | made | cut & half_updated(found, before, after))
    older = found.fields["version"][wrong] < before.fields["version"][wrong]
    assert not wrong.any(), f"{wrong.sum()} rows differ after step {done}, {older.sum()} of them are older"
    assert tier.attached.dropped == 0
    train(tier, done + 3, first=done + 1)  # it goes on
    assert tier.verify() == []
    tier.close()
    assert [path.name for path in folder.glob("hotrow-*")] == []


def test_rows_that_were_not_written_yet_outlive_a_killed_process(tmp_path: Path) -> None:
    check_killed(start(tmp_path, "at the end"))
    tier = TieredTier(table(tmp_path))
    ours, theirs = tier.whole_rows(np.arange(KEYS, dtype=np.uint64)), rows_after(STEPS)
    assert tier.attached is not None
    assert tier.attached.rows == np.count_nonzero(theirs.fields["version"])
    assert same_rows(ours, theirs).all()
    tier.close()


def test_slots_that_were_being_written_are_no_damage_and_others_are_counted_once(tmp_path: Path) -> None:
    """The row of a slot that was being written when its process died is still where it was."""
    check_killed(start(tmp_path, "at the end"))
    (staged,) = tmp_path.glob("*.staged")
    extents = np.fromfile(staged, np.uint8).reshape(-1, EXTENT)
    slots = extents[:, EXTENT_HEADER : EXTENT_HEADER + (EXTENT - 2 * EXTENT_HEADER) // SLOT * SLOT]
    slots = slots.reshape(len(extents), -1, SLOT)
    in_use = np.flatnonzero(extents[:, :EXTENT_HEADER].any(1) & slots.any((1, 2)))
    assert len(in_use) > 0
    newest: dict[int, int] = {}
    for extent in in_use:
        for key, sequence in slots[extent, :, :16].copy().view(np.uint64)[:, :2].tolist():
            newest[key] = max(sequence, newest.get(key, 0))
    counted = appended = 0
    for extent in in_use:
        used = 1 + np.flatnonzero(slots[extent].any(1)).max()
        written = int(extents[extent, 28:32].view(np.uint32)[0])  # when its header was
        for place in range(used - 1):  # superseded copies: rows in the slots behind them stay
            key, sequence = slots[extent, place, :16].copy().view(np.uint64).tolist()
            if sequence < newest[key]:
                slots[extent, place, 16:20] ^= 0xFF  # the checksum
                counted += place < written
        slots[extent, used : used + 2] = slots[extent, used - 1]  # whole but for the checksum, which counts the place
        appended += len(slots[extent, used : used + 2])
    assert appended > 0
    extents.tofile(staged)
    for dropped in (counted, 0):
        tier = TieredTier(table(tmp_path))
        ours, theirs = tier.whole_rows(np.arange(KEYS, dtype=np.uint64)), rows_after(STEPS)
        assert tier.attached is not None
        there = int(np.count_nonzero(theirs.fields["version"]))
        assert (tier.attached.rows, tier.attached.dropped) == (there, dropped)
        assert same_rows(ours, theirs).all()
        tier.close(leave=True)
    TieredTier(table(tmp_path)).close()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("call", [40, 61])
def test_rows_that_a_call_was_moving_are_as_they_were_last(moment: str, call: int, tmp_path: Path) -> None:
    check_killed(start(tmp_path, moment, call))
    check_rows(tmp_path)


@pytest.mark.parametrize("call", ["erase", "clear"])
def test_rows_that_a_call_was_removing_are_gone_or_as_they_were_last(call: str, tmp_path: Path) -> None:
    check_killed(start(tmp_path, f"between {call}'s two tiers", 1))
    tier = TieredTier(table(tmp_path))
    found, last = tier.whole_rows(np.arange(KEYS, dtype=np.uint64)), rows_after(STEPS)
    there = found.fields["version"] > 0
    assert 0 < there.sum() < np.count_nonzero(last.fields["version"])
    assert same_rows(found, last)[there].all()
    assert tier.verify() == []
    tier.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_at_any_moment_loses_no_change_of_a_whole_step(seed: int, tmp_path: Path) -> None:
    child, chance = start(tmp_path, "by somebody else"), random.Random(seed)
    end = time.monotonic() + WAIT_S
    while not (tmp_path / "done").exists() or (tmp_path / "done").stat().st_size < 30:
        assert child.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 0.1))
    child.kill()
    check_killed(child)
    check_rows(tmp_path)
