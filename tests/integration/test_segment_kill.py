"""A process killed at any moment leaves a segment that the next one attaches to, with whole pieces and honest marks."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hotrow import _native
from hotrow._native import PushSeen, Segment
from hotrow.errors import SegmentError

KILLS = 20
KILLS_PER_FILE = 4

# Loads the module by its file, without the package: that leaves torch out and starts at once.
LOAD = """
import importlib.util, os, sys, time
import numpy  # the first array would import it, and take longer than a kill waits

spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)

def open_segment(keep=True):
    return native.Segment(sys.argv[2], [("dim", "16")], False, keep)
"""

# Piece after piece, each the work of one push: intent, piece, its bytes, done.
WRITER = """
segment = open_segment()
grants = [tag[1] for tag in segment.pieces()] + segment.push_partly()
grant = max(grants, default=0)
print("ready", flush=True)
while True:
    grant += 1
    segment.push_begin(grant)
    size = 1 + grant * 7919 % 30_000
    segment.allocate(grant % 32, grant, size, size)[:] = 1 + grant % 255
    segment.push_finish(grant)
"""

MAKER = """
print("ready", flush=True)
while True:
    open_segment(keep=False).close()
"""

FORKER = """
segment = open_segment(keep=False)
segment.allocate(0, 0, 1, 100)[:] = 9
if (child := os.fork()) == 0:
    {child}
else:
    print(child, flush=True)
    {parent}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hotrow-run-table.rows"


def start(script: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LOAD + script, _native.__file__, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process ended before it was ready"
    return line


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()


def attach(path: Path) -> Segment:
    return Segment(str(path), [("dim", "16")], huge=False, keep=True)


def check(segment: Segment) -> int:
    """Every piece is whole and its push done, but for pushes that a kill cut. Gives back the number of those."""
    cut = set(segment.push_partly())
    grants = []
    for number, (partition, grant, rows, size) in enumerate(segment.pieces()):
        assert (partition, rows, size) == (grant % 32, 1 + grant * 7919 % 30_000, rows)
        grants.append(grant)
        piece = segment.piece(number)
        filled = int((piece == 1 + grant % 255).sum())
        assert not piece[filled:].any(), "bytes lie where nobody wrote"
        if grant not in cut:
            assert filled == size
            assert segment.push_begin(grant) == PushSeen.done
    last = max(cut.union(grants), default=0)
    assert sorted(cut.union(grants)) == list(range(1, last + 1)), "a push is neither done nor known as cut"
    return len(cut)


def test_killed_writers_leave_whole_pieces_and_at_most_one_push_cut_each(path: Path) -> None:
    moments = random.Random(3)
    for kills in range(KILLS):
        if kills % KILLS_PER_FILE == 0:
            path.unlink(missing_ok=True)
        writer = start(WRITER, path)
        assert first_line(writer) == "ready\n"
        time.sleep(moments.uniform(0, 0.02))
        kill(writer)
        segment = attach(path)
        assert segment.attached
        assert check(segment) <= kills % KILLS_PER_FILE + 1
        segment.close()
    assert len(attach(path).pieces()) > KILLS_PER_FILE


def test_killed_makers_leave_a_file_that_serves(path: Path) -> None:
    moments = random.Random(4)
    for _ in range(KILLS // 2):
        maker = start(MAKER, path)
        assert first_line(maker) == "ready\n"
        time.sleep(moments.uniform(0, 0.01))
        kill(maker)
        segment = attach(path)
        assert segment.pieces() == []
        assert not segment.allocate(0, 0, 1, 100_000).any()
        segment.close()
        path.unlink()


def test_a_segment_in_use_names_the_process_that_has_it(path: Path) -> None:
    writer = start(WRITER, path)
    first_line(writer)
    with pytest.raises(SegmentError, match=f"in use by process {writer.pid}"):
        attach(path)
    kill(writer)
    check(attach(path))


def test_a_forked_child_that_ends_leaves_its_parent_s_file(path: Path) -> None:
    parent = start(
        FORKER.format(child="sys.exit()", parent="os.wait(); print('ended', flush=True); time.sleep(60)"), path
    )
    first_line(parent)
    assert first_line(parent) == "ended\n"
    assert path.exists()
    with pytest.raises(SegmentError, match="in use"):
        attach(path)
    kill(parent)
    assert attach(path).piece(0).tolist() == [9] * 100


def test_a_forked_child_that_lives_on_does_not_hold_its_dead_parent_s_lock(path: Path) -> None:
    parent = start(FORKER.format(child="time.sleep(60)", parent="time.sleep(60)"), path)
    child = int(first_line(parent))
    try:
        kill(parent)
        assert attach(path).piece(0).tolist() == [9] * 100
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_clean_exit_leaves_nothing(path: Path) -> None:
    process = start("segment = open_segment(keep=False); array = segment.allocate(0, 0, 1, 100); print('made')", path)
    assert first_line(process) == "made\n"
    assert process.wait() == 0
    assert process.stdout is not None
    process.stdout.close()
    assert not path.exists()
