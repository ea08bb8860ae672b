"""The push log: a push is applied once, and one that was cut in the middle is known as such, also after a restart."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

import hotrow as hr
from hotrow._native import PushSeen, Segment
from hotrow.store import RamTier

REACH = 65_536


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.rows"


def open_segment(path: Path) -> Segment:
    return Segment(str(path), [], huge=False, keep=True)


def test_a_push_is_fresh_then_partly_then_done(path: Path) -> None:
    log = open_segment(path)
    assert log.push_begin(7) == PushSeen.fresh
    assert log.push_begin(7) == PushSeen.partly
    assert log.push_partly() == [7]
    log.push_finish(7)
    assert log.push_begin(7) == PushSeen.done
    assert log.push_partly() == []


def test_grants_may_come_in_any_order(path: Path) -> None:
    log = open_segment(path)
    for grant in (5, 3, 40_000, 1, 65_000):
        assert log.push_begin(grant) == PushSeen.fresh
        log.push_finish(grant)
    assert log.push_begin(2) == PushSeen.fresh
    assert [log.push_begin(grant) for grant in (1, 3, 5, 40_000, 65_000)] == [PushSeen.done] * 5


def test_the_ring_forgets_a_grant_when_one_a_whole_ring_newer_comes(path: Path) -> None:
    log = open_segment(path)
    log.push_begin(10)
    log.push_finish(10)
    assert log.push_begin(10 + REACH - 1) == PushSeen.fresh
    assert log.push_begin(10) == PushSeen.done
    assert log.push_begin(10 + REACH) == PushSeen.fresh
    assert log.push_begin(10) == PushSeen.forgotten
    assert log.push_begin(11) == PushSeen.fresh  # never begun, whatever came since
    log.push_finish(10)  # a newer one has its place: nothing is left to mark
    assert log.push_begin(10 + REACH) == PushSeen.partly
    assert log.push_partly() == [11, 10 + REACH - 1, 10 + REACH]


def test_after_an_attach_intents_are_cut_and_stay_so(path: Path) -> None:
    log = open_segment(path)
    for grant in (1, 2, 3):
        log.push_begin(grant)
    log.push_finish(2)
    log.close()
    for _ in range(2):
        log = open_segment(path)
        assert log.push_partly() == [1, 3]
        assert [log.push_begin(grant) for grant in (1, 2, 3)] == [PushSeen.partly, PushSeen.done, PushSeen.partly]
        with pytest.raises(ValueError, match="grant=1: was not begun here"):
            log.push_finish(1)
        log.close()


@pytest.mark.parametrize("grant", [0, 2**62, 2**64 - 1])
def test_numbers_that_are_no_grants_are_refused(path: Path, grant: int) -> None:
    log = open_segment(path)
    for call in (log.push_begin, log.push_finish):
        with pytest.raises(ValueError, match=f"grant={grant}: grants are numbers from 1"):
            call(grant)
    assert log.push_begin(2**62 - 1) == PushSeen.fresh


def test_finish_wants_a_grant_that_was_begun(path: Path) -> None:
    log = open_segment(path)
    with pytest.raises(ValueError, match="was not begun here"):
        log.push_finish(5)
    log.push_begin(5)
    log.push_finish(5)
    with pytest.raises(ValueError, match="finished already"):
        log.push_finish(5)


def test_of_many_threads_exactly_one_may_apply_a_push(path: Path) -> None:
    log = open_segment(path)
    fresh: list[int] = []

    def push() -> None:
        for grant in range(1, 2001):
            if log.push_begin(grant) == PushSeen.fresh:
                fresh.append(grant)
                log.push_finish(grant)

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fresh) == list(range(1, 2001))


def test_a_discarded_push_is_not_taken_for_an_applied_one_by_a_later_process(tmp_path: Path) -> None:
    table = hr.Table(dim=2, optimizer=hr.SGD(lr=1.0), segment=hr.Segment(run="log", directory=tmp_path, keep=True))
    with closing(RamTier(table)) as tier:
        tier.pushes.begin(1)
        tier.pushes.finish(1)
        tier.pushes.begin(2)
        assert [tier.pushes.discard(grant) for grant in (1, 2, 3)] == ["done", "partly", "fresh"]
    with closing(RamTier(table)) as tier:
        assert [tier.pushes.find(grant) for grant in (1, 2, 3)] == ["done", "partly", "discarded"]
        assert tier.pushes.begin(3) == tier.pushes.discard(3) == "discarded"
        assert tier.pushes.begin(3 + REACH) == "fresh"
        assert tier.pushes.discard(3) == "forgotten"
