"""The loader hands out every batch once, in an order that a resume keeps, and leaves no thread behind."""

import gc
import json
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.data import background
from hotrow.data.batch import Batch
from hotrow.data.files import find_files
from hotrow.data.loader import HELD, Lease, Loader
from hotrow.data.position import Position
from hotrow.data.schema import Schema
from hotrow.data.source import ArrowSource, Trouble
from hotrow.data.text import TextSource
from hotrow.errors import ConfigError, InputError
from profiles import examples

SCHEMA = Schema(label="click", ids=("row", {"column": "many", "several": True}), time={"column": "at", "format": "s"})

Rows = list[int]
Plan = list[tuple[int, int, Rows]]  # (epoch, index, rows)


def table(rows: int) -> pa.Table:
    """Row r has the id r, and r % 4 further ids."""
    numbers = range(rows)
    many = pa.array([[row * 10 + place for place in range(row % 4)] for row in numbers], pa.list_(pa.int64()))
    whole = pa.array(numbers, pa.int64())
    return pa.table({"click": [row % 2 for row in numbers], "row": whole, "many": many, "at": whole})


class Counting:
    """A source of numbered rows in blocks that remembers where it was asked to begin, and how much it has given."""

    schema = SCHEMA

    def __init__(self, rows: int, block: int = 7) -> None:
        self.trouble = Trouble()
        self._inner = ArrowSource(table(rows).to_batches(block), SCHEMA)
        self._rows = rows
        self.skips: list[int] = []
        self.given = 0

    def rows(self) -> int:
        return self._rows

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        self.skips.append(skip)
        for batch in self._inner.read(skip):
            self.given += 1
            yield batch


def rows_of(batch: Batch) -> Rows:
    assert batch.times is not None
    assert batch.labels is not None
    rows: Rows = batch.times.tolist()
    assert batch.labels[:, 0].tolist() == [row % 2 for row in rows]
    (bags,) = (part for part in batch.parts if part.kind == "bags")
    assert bags.bounds is not None
    assert np.diff(bags.bounds).tolist() == [row % 4 for row in rows]
    return rows


def plan_of(loader: Loader) -> Plan:
    return [(lease.epoch, lease.index, rows_of(batch)) for lease, batch in loader]


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hotrow-reader"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    if readers():
        gc.collect()  # an exception that was caught may still hold its iterator
    assert readers() == []


SHAPES = st.fixed_dictionaries(
    {"batch": st.integers(1, 12), "shuffle": st.integers(0, 25), "seed": st.integers(0, 3), "drop_last": st.booleans()}
)


@settings(max_examples=examples(60))
@given(rows=st.integers(0, 60), block=st.integers(1, 20), epochs=st.integers(1, 3), shape=SHAPES)
def test_every_epoch_holds_every_row_once(rows: int, block: int, epochs: int, shape: dict[str, Any]) -> None:
    plan = plan_of(Loader(Counting(rows, block), epochs=epochs, **shape))
    size, window = shape["batch"], shape["shuffle"] or 1
    kept = rows - rows % size if shape["drop_last"] else rows
    for epoch in range(epochs):
        mine = [found for of, _, found in plan if of == epoch]
        assert [len(found) for found in mine[:-1]] == [size] * (len(mine) - 1)
        order = [row for found in mine for row in found]
        assert len(order) == len(set(order)) == kept
        assert [row // window for row in order] == sorted(row // window for row in order)  # windows stay in order
        if not shape["drop_last"]:
            assert sorted(order) == list(range(rows))
    assert [(epoch, index) for epoch, index, _ in plan] == sorted((epoch, index) for epoch, index, _ in plan)


@given(
    rows=st.integers(0, 60),
    block=st.integers(1, 20),
    epochs=st.integers(1, 3),
    shape=SHAPES,
    decisions=st.lists(st.booleans(), max_size=40),
)
def test_a_resume_hands_out_exactly_the_others_in_the_same_order(
    rows: int, block: int, epochs: int, shape: dict[str, Any], decisions: list[bool]
) -> None:
    whole = plan_of(Loader(Counting(rows, block), epochs=epochs, **shape))
    first = Loader(Counting(rows, block), epochs=epochs, **shape)
    done = set()
    with_leases = iter(first)
    for is_done, (lease, _) in zip(decisions, with_leases, strict=False):
        if is_done:
            first.done(lease)
            done.add((lease.epoch, lease.index))
    with_leases.close()
    saved = json.loads(json.dumps(first.position().document()))
    resumed = Loader(Counting(rows, block + 3), epochs=epochs, position=Position.of(saved), **shape)
    assert plan_of(resumed) == [part for part in whole if part[:2] not in done]
    assert resumed.position().samples == sum(len(found) for *at, found in whole if tuple(at) in done)


@settings(max_examples=examples(50))
@given(rows=st.integers(1, 50), shape=SHAPES, data=st.data())
def test_what_is_given_back_comes_again_before_new_ones(rows: int, shape: dict[str, Any], data: st.DataObject) -> None:
    whole = plan_of(Loader(Counting(rows), epochs=2, **shape))
    loader = Loader(Counting(rows), epochs=2, **shape)
    trained: Plan = []
    numbers: list[int] = []
    expected: list[tuple[int, int]] = []
    returns = 0
    for lease, batch in loader:
        numbers.append(lease.number)
        if expected:
            assert (lease.epoch, lease.index) == expected.pop(0)
        if returns < 20 and data.draw(st.booleans()):
            loader.give_back(lease)
            expected.append((lease.epoch, lease.index))
            returns += 1
        else:
            loader.done(lease)
            trained.append((lease.epoch, lease.index, rows_of(batch)))
    assert sorted(trained) == sorted(whole)
    assert numbers == list(range(len(numbers)))
    assert loader.position().epoch == 2


def test_windows_are_mixed_by_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> Rows:
        plan = plan_of(Loader(Counting(100), 10, epochs=2, shuffle=50, seed=seed))
        return [row for of, _, found in plan if of == epoch for row in found]

    orders = [order(0, 0), order(0, 1), order(1, 0), list(range(100))]
    assert len({tuple(each) for each in orders}) == 4
    assert order(0, 0) == orders[0]
    first, second = orders[0][:50], [row - 50 for row in orders[0][50:]]
    assert first != second  # a window's order depends on its number


@pytest.mark.parametrize(("shuffle", "skip"), [(0, 40), (15, 30), (40, 40), (64, 0)])
def test_a_resume_jumps_to_the_window_of_its_first_batch(shuffle: int, skip: int) -> None:
    first = Loader(Counting(100), 8, shuffle=shuffle)
    for lease, _ in islice(first, 5):
        first.done(lease)
    source = Counting(100)
    plan_of(Loader(source, 8, shuffle=shuffle, position=first.position()))
    assert source.skips == [skip]


def test_lease_numbers_go_on_after_a_resume() -> None:
    first = Loader(Counting(30), 8)
    for lease, _ in islice(first, 2):
        first.done(lease)
    resumed = Loader(Counting(30), 8, position=first.position())
    assert [lease for lease, _ in resumed] == [Lease(2, 0, 2, 8), Lease(3, 0, 3, 6)]


def test_another_iteration_hands_out_what_is_not_done() -> None:
    loader = Loader(Counting(40), 8)
    (kept, _), (void, _) = islice(loader, 2)
    loader.done(kept)
    assert [index for _, index, _ in plan_of(loader)] == [1, 2, 3, 4]
    with pytest.raises(InputError, match="lease 1 of batch 1, epoch 0: is not out"):
        loader.done(void)
    with pytest.raises(InputError, match="is not out"):
        loader.done(kept)
    with pytest.raises(InputError, match="is not out"):
        loader.give_back(kept)


def test_a_lease_given_back_after_the_readers_end_still_comes() -> None:
    loader = Loader(Counting(10), 5)
    iterator = iter(loader)
    (first, _), (second, _) = next(iterator), next(iterator)
    loader.done(second)
    loader.give_back(first)
    assert [lease.index for lease, _ in iterator] == [0]


def test_an_epoch_whose_end_is_known_may_be_over_before_it_is_read_again() -> None:
    loader = Loader(Counting(4), 2, epochs=2)
    first, *_ = (lease for lease, _ in list(loader))  # the ends of both epochs are seen, nothing is done
    assert first.epoch == 0
    for lease, _ in loader:
        loader.done(lease)
    assert loader.position().epoch == 2


def test_leases_may_be_settled_by_other_threads() -> None:
    loader = Loader(Counting(400), 2, epochs=2, shuffle=30)
    trained: list[tuple[int, int]] = []

    def settle(lease: Lease) -> None:
        if lease.number % 3 == 0:
            loader.give_back(lease)
        else:
            loader.done(lease)
            trained.append((lease.epoch, lease.index))

    with ThreadPoolExecutor(4) as pool:
        while loader.position().epoch < 2:  # what is given back after the end needs another iteration
            wait([pool.submit(settle, lease) for lease, _ in loader])
    assert sorted(trained) == [(epoch, index) for epoch in range(2) for index in range(200)]


def test_one_iteration_at_a_time() -> None:
    loader = Loader(Counting(40), 8)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(InputError, match="being iterated already"):
        next(iter(loader))
    iterator.close()
    assert len(plan_of(loader)) == 5


def test_leases_of_somebody_who_never_says_done_are_let_go() -> None:
    loader = Loader(Counting(HELD + 2, block=500), 1)
    leases = [lease for lease, _ in islice(loader, HELD + 1)]
    loader.give_back(leases[1])
    with pytest.raises(InputError, match="lease 0 of batch 0, epoch 0: is not out"):
        loader.give_back(leases[0])


def take_all(loader: Loader) -> None:
    list(loader)


def leave_early(loader: Loader) -> None:
    for _ in loader:
        break


def fall_over(loader: Loader) -> None:
    def consume() -> None:
        for _ in loader:
            raise KeyError("the consumer's own")

    with pytest.raises(KeyError, match="the consumer's own"):
        consume()


def close(loader: Loader) -> None:
    iterator = iter(loader)
    next(iterator)
    assert len(readers()) == 1
    iterator.close()


def never_start(loader: Loader) -> None:
    iter(loader)


@pytest.mark.parametrize("leave", [take_all, leave_early, fall_over, close, never_start])
def test_the_thread_ends_with_its_consumer(leave: Callable[[Loader], None]) -> None:
    leave(Loader(Counting(300), 8, epochs=3, prefetch=2))
    assert readers() == []


class Broken(Counting):
    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        yield from islice(super().read(skip), 2)
        self._break()

    def _break(self) -> None:
        raise OSError("the disk is gone")


def test_the_readers_exception_comes_out_with_its_traceback_after_what_was_read() -> None:
    seen: Rows = []
    with pytest.raises(OSError, match="the disk is gone") as caught:
        seen.extend(row for _, batch in Loader(Broken(1000, block=10), 5) for row in rows_of(batch))
    assert seen == list(range(20))
    assert "_break" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_the_reader_runs_ahead_by_no_more_than_prefetch() -> None:
    source = Counting(1000, block=10)
    iterator = iter(Loader(source, 10, prefetch=3))
    next(iterator)
    next(iterator)
    for _ in range(200):  # give the thread every chance to run too far
        threading.Event().wait(0.001)
        assert source.given <= 2 + 3 + 1  # handed out, in the queue, in the reader's hand
    assert source.given == 2 + 3 + 1
    iterator.close()


class Hanging(Counting):
    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.go_on = threading.Event()

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        yield from islice(super().read(skip), 1)
        self.go_on.wait()


def test_a_reader_that_hangs_in_its_input_does_not_hold_its_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "JOIN_S", 0.05)
    source = Hanging(100)
    iterator = iter(Loader(source, 7))
    next(iterator)
    iterator.close()
    (left,) = readers()
    source.go_on.set()
    left.join()


def test_waiting_is_measured() -> None:
    source = Hanging(100)
    loader = Loader(source, 7)
    iterator = iter(loader)
    next(iterator)
    before = loader.waited_s
    threading.Timer(0.05, source.go_on.set).start()
    assert next(iterator, None) is None
    assert loader.waited_s > before


def test_endless_reading_goes_round_and_refuses_a_source_that_gives_nothing() -> None:
    found = [(lease.epoch, lease.index) for lease, _ in islice(Loader(Counting(20), 8, epochs=None), 7)]
    assert found == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
    with pytest.raises(InputError, match="reading would never end"):
        list(Loader(Counting(0), 8, epochs=None))
    with pytest.raises(InputError, match="reading would never end"):
        list(Loader(Counting(7), 8, epochs=None, drop_last=True))
    assert list(Loader(Counting(0), 8, epochs=2)) == []
    assert list(Loader(Counting(5), 8, epochs=0)) == []


def test_trouble_is_counted() -> None:
    rows = pa.table({"click": ["1", "x", "0", "1", "0"], "row": ["1", "2", None, None, "5"]})
    source = ArrowSource(rows, Schema(label="click", ids=("row",)), limit=1)
    loader = Loader(source, 3, epochs=2, drop_last=True)
    assert len(list(loader)) == 2
    assert loader.counts["missing_ids"] == 4
    assert loader.counts["malformed_lines"] == 1  # each line once, however often it is read
    assert loader.counts["dropped_samples"] == 2


def test_data_that_has_changed_is_refused() -> None:
    first = Loader(Counting(100), 10)
    leases = [lease for lease, _ in islice(first, 8)]
    first.done(leases[0])
    first.done(leases[7])
    position = first.position()
    assert len(plan_of(Loader(Counting(71), 10, position=position))) == 6
    with pytest.raises(InputError, match="8 batches of 10 are done, but there are only 70 rows: the data has changed"):
        Loader(Counting(70), 10, position=position)
    unknown = ArrowSource(table(70), SCHEMA)  # it does not know how many rows it has
    with pytest.raises(InputError, match="batch 7 of epoch 0 is done, but there are only 7: the data has changed"):
        list(Loader(unknown, 10, position=position))


def test_a_resume_with_other_settings_is_refused() -> None:
    position = Loader(Counting(100), 10, shuffle=20, seed=1).position()
    Loader(Counting(100), 10, shuffle=20, seed=1, position=position)
    with pytest.raises(ConfigError, match=r"shuffle=30: the position .* was made with shuffle=20: set it back"):
        Loader(Counting(100), 10, shuffle=30, seed=1, position=position)
    with pytest.raises(ConfigError, match=r"position is a dict: give a Position, or Position.of"):
        Loader(Counting(100), 10, position=position.document())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"), [("batch", 0), ("prefetch", 0), ("epochs", -1), ("shuffle", -1), ("batch", 1.5)]
)
def test_bad_settings_are_refused(name: str, value: Any) -> None:
    given: dict[str, Any] = {"batch": 8, name: value}
    with pytest.raises(ConfigError, match=rf"{name}={value}"):
        Loader(Counting(10), **given)


def test_data_without_labels_is_read_for_predicting() -> None:
    unlabelled = table(10).drop_columns(["click"])
    ((_, batch),) = Loader(ArrowSource(unlabelled, SCHEMA, labels=False), 16, labels=False)
    assert batch.labels is None
    assert len(batch) == 10


@settings(max_examples=examples(20))
@given(done=st.integers(0, 8), shuffle=st.integers(0, 40))
def test_a_text_file_is_resumed(done: int, shuffle: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.mktemp("text") / "rows.csv"
    path.write_text("click,row\n" + "".join(f"{row % 2},{row}\n" for row in range(60)))
    schema = Schema(label="click", ids=("row",))

    def rows(loader: Loader) -> list[Rows]:
        return [batch.parts[0].keys.tolist() for _, batch in loader]

    whole = rows(Loader(TextSource(find_files(path), schema), 7, shuffle=shuffle))
    assert sorted(chain(*whole)) == list(range(60))
    first = Loader(TextSource(find_files(path), schema), 7, shuffle=shuffle)
    for lease, _ in islice(first, done):
        first.done(lease)
    rest = rows(Loader(TextSource(find_files(path), schema), 7, shuffle=shuffle, position=first.position()))
    assert rest == whole[done:]
