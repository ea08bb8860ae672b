"""A call of a table in GPU memory that fails anywhere leaves a sound table, and no row is lost."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.hbm import HbmRows, HbmSpec, HbmTier
from hotrow.store.hbm.claim import fill_slots

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OLD, NEW = torch.arange(7, device=DEVICE), torch.arange(100, 105, device=DEVICE)
CALLED = torch.cat([NEW, OLD[:1]])  # a row that is there is locked


def full_tier() -> HbmTier:
    """8 slots with 7 rows, whose values are their keys."""
    settings: dict[str, Any] = {"group_slots": 4, "groups": 2, "track_changes": True}
    tier = HbmTier(HbmSpec(dim=2, capacity=8, rule=UpdateRule("adagrad", lr=1.0), **settings), DEVICE)
    assert tier.put_and_evict(OLD, rows_of(OLD)).turned_away == 0
    return tier


def rows_of(keys: torch.Tensor) -> torch.Tensor:
    return keys.float()[:, None].expand(-1, 2).contiguous()


def find_or_init(tier: HbmTier) -> Any:
    return tier.find_or_init(CALLED, torch.empty(len(CALLED), 2, device=DEVICE))


def put_and_evict(tier: HbmTier) -> Any:
    return tier.put_and_evict(CALLED, rows_of(CALLED))


def failing(real: Callable[..., Any], *, after: bool, error: BaseException) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if after:
            real(*arguments, **named)
        raise error

    return call


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", [find_or_init, put_and_evict])
@pytest.mark.parametrize(
    "place",
    ["_table.lock", "_table.claim", "_columns.read", "_columns.make", "_table.unlock"],
)
def test_a_call_that_fails_loses_no_row(place: str, call: Callable[[HbmTier], Any], after: bool) -> None:
    tier = full_tier()
    owner, name = (getattr(tier, place.split(".")[0]), place.split(".")[1]) if "." in place else (tier, place)
    error = KeyboardInterrupt() if after else torch.OutOfMemoryError("no memory")
    with (
        mock.patch.object(owner, name, failing(getattr(owner, name), after=after, error=error)),
        pytest.raises(type(error)),
    ):
        call(tier)
    assert tier.verify() == []
    plan = call(tier)
    assert tier.verify() == []
    assert plan.present.all()
    check_old_rows(tier, plan.evicted)
    stats = tier.stats()
    assert stats.created - stats.evicted - stats.erased == stats.rows == len(tier)


@pytest.mark.parametrize("call", [find_or_init, put_and_evict])
def test_a_claim_whose_second_launch_fails_displaces_nothing(call: Callable[[HbmTier], Any]) -> None:
    """Slots are claimed then, and hold their old rows."""
    tier = full_tier()
    run = tier._table._run

    def fails(kernel: Any, *arguments: Any, **settings: Any) -> None:
        if kernel is fill_slots:
            raise KeyboardInterrupt
        run(kernel, *arguments, **settings)

    with mock.patch.object(tier._table, "_run", fails), pytest.raises(KeyboardInterrupt):
        call(tier)
    assert tier.verify() == []
    assert tier.take_evicted() is None
    assert tier.find(OLD).absent == 0
    check_old_rows(tier, call(tier).evicted)


@pytest.mark.parametrize(
    ("call", "name"), [(find_or_init, "read_values"), (put_and_evict, "write")], ids=["find_or_init", "put_and_evict"]
)
def test_rows_that_were_displaced_are_returned_by_the_next_call(call: Callable[[HbmTier], Any], name: str) -> None:
    tier = full_tier()
    with mock.patch.object(tier._columns, name, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        call(tier)
    assert tier.verify() == []
    if call is put_and_evict:
        assert tier.find(NEW).absent == len(NEW)  # no row without the values that were given for it
    check_old_rows(tier, call(tier).evicted)


def check_old_rows(tier: HbmTier, evicted: HbmRows | None) -> None:
    """Each is in the table or was handed over, as it was."""
    parts = [*tier.export(), *([] if evicted is None else [evicted])]
    keys, values = torch.cat([part.keys for part in parts]), torch.cat([part.values for part in parts])
    old = keys < len(OLD)
    assert sorted(keys[old].tolist()) == OLD.tolist()
    assert torch.equal(values[old], rows_of(keys[old]))


def test_rows_that_a_failed_call_displaced_can_be_taken_once() -> None:
    tier = full_tier()
    assert tier.take_evicted() is None
    with mock.patch.object(tier._columns, "make", side_effect=torch.OutOfMemoryError), pytest.raises(RuntimeError):
        find_or_init(tier)
    check_old_rows(tier, tier.take_evicted())
    assert tier.take_evicted() is None


@pytest.mark.parametrize("call", [find_or_init, put_and_evict])
@pytest.mark.parametrize("launch", ["erase", "_restore"])
def test_no_lock_stays_where_undoing_a_call_fails_too(launch: str, call: Callable[[HbmTier], Any]) -> None:
    tier = full_tier()
    with (
        mock.patch.object(tier._columns, "read", side_effect=torch.OutOfMemoryError),
        mock.patch.object(tier._table, launch, side_effect=torch.OutOfMemoryError),
        pytest.raises(torch.OutOfMemoryError),
    ):
        call(tier)
    assert not tier._table.locks.any()


def test_displaced_rows_are_counted_where_undoing_a_call_fails_too() -> None:
    tier = full_tier()
    with (
        mock.patch.object(tier._columns, "make", side_effect=torch.OutOfMemoryError),
        mock.patch.object(tier._table, "undo", side_effect=torch.OutOfMemoryError),
        pytest.raises(torch.OutOfMemoryError),
    ):
        find_or_init(tier)
    evicted = tier.take_evicted()
    assert evicted is not None
    assert tier.stats().evicted == len(evicted) > 0


def test_rows_without_their_values_are_removed_where_no_memory_is_left() -> None:
    tier, out_of_memory = full_tier(), mock.Mock(side_effect=torch.OutOfMemoryError)
    with (
        mock.patch.object(tier._columns, "write", out_of_memory),
        mock.patch.object(torch.Tensor, "sum", out_of_memory),
        pytest.raises(torch.OutOfMemoryError),
    ):
        put_and_evict(tier)
    assert tier.verify() == []
    assert tier.find(NEW).absent == len(NEW)
