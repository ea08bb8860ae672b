"""The account of malformed lines: each counts once, whoever reads it."""

import pickle
import threading
from collections.abc import Iterator

from hotrow.data.source import Malformed, Trouble

FAULTS = [Malformed("x.csv", line, "click is missing", "") for line in (2, 5, 7)]


def test_lines_that_two_threads_meet_at_once_count_once() -> None:
    trouble, met, noted = Trouble(), threading.Event(), threading.Event()

    class Slow(list[Malformed]):
        """The other thread notes the same lines, if it can, once these are compared with what is known."""

        def __iter__(self) -> Iterator[Malformed]:
            yield from super().__iter__()
            met.set()
            noted.wait(0.2)

    def other() -> None:
        assert met.wait(20)
        trouble.note("x.csv", 10, FAULTS, [3])
        noted.set()

    thread = threading.Thread(target=other)
    thread.start()
    trouble.note("x.csv", 10, Slow(FAULTS), [3])
    thread.join()
    assert (trouble.malformed, trouble.blank, trouble.first) == (3, 1, FAULTS)


def test_an_account_travels_with_its_source() -> None:
    trouble = Trouble()
    trouble.note("x.csv", 10, FAULTS)
    other = pickle.loads(pickle.dumps(trouble))
    other.note("x.csv", 12, [Malformed("x.csv", 11, "click is missing", "")])
    assert (trouble.malformed, other.malformed) == (3, 4)
