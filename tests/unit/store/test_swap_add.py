"""A change of state is added at one SWAP period: row or change, whichever stands at the earlier one, decays first.

So a row holds the same v whenever the changes of its time arrive, and as if every v had decayed at every border.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow import Adagrad, Adam, InputError, RowwiseAdagrad, Segment, Swap, Table
from hotrow.store import RamTier
from oracles import optimizers

PERIOD = 10
KEY = np.array([7], np.uint64)
SPECS: list[Adagrad | RowwiseAdagrad | Adam] = [Adagrad(), RowwiseAdagrad(), Adam()]
periods = st.integers(0, 6)


def swapped(spec: Adagrad | RowwiseAdagrad | Adam, decay: float = 0.5) -> Adagrad | RowwiseAdagrad | Adam:
    return type(spec)(**spec.model_dump(exclude={"swap"}), swap=Swap(period=PERIOD, decay=decay))


def row_at(tier: RamTier, state: list[float], period: int) -> None:
    fields = {"period": np.array([period], np.uint32)}
    tier.put(KEY, np.zeros((1, tier.dim), np.float32), np.array([state], np.float32), fields)


def state_of(tier: RamTier) -> tuple[list[float], int]:
    (rows,) = tier.export()
    return [float(number) for number in rows.state[0]], int(rows.fields["period"][0])


def test_a_change_from_an_earlier_period_is_decayed_before_it_is_added() -> None:
    tier = RamTier(Table(dim=2, optimizer=Adagrad(swap=Swap(period=PERIOD, decay=0.5))))
    row_at(tier, [4.0, 8.0], period=2)
    change = np.array([[1.82, 1.97]], np.float32)
    tier.add(KEY, np.zeros((1, 2), np.float32), change, samples=0)
    state, period = state_of(tier)
    np.testing.assert_allclose(state, [4 + 1.82 / 4, 8 + 1.97 / 4], rtol=1e-6)
    assert period == 2


@given(
    spec=st.sampled_from(SPECS),
    decay=st.sampled_from([0.25, 0.7, 1.0]),
    of_row=periods,
    of_change=periods,
    read_at=periods,
    moments=st.lists(st.floats(0, 100, width=32), min_size=12, max_size=12),
)
def test_lazy_rows_and_changes_are_those_that_decay_at_every_border(
    spec: Adagrad | RowwiseAdagrad | Adam, decay: float, of_row: int, of_change: int, read_at: int, moments: list[float]
) -> None:
    made, dim = swapped(spec, decay), 3
    read_at = max(of_row, of_change, read_at)
    size = optimizers.state_dim(made, dim)
    row, change = moments[:size], moments[6 : 6 + size]
    tier = RamTier(Table(dim=dim, optimizer=made))
    row_at(tier, row, of_row)
    tier.add(KEY, np.zeros((1, dim), np.float32), np.array([change], np.float32), samples=of_change * PERIOD)
    state, period = state_of(tier)
    assert period == max(of_row, of_change)
    lazy = optimizers.decayed(made, np.array(state), dim, read_at - period)
    eager = optimizers.decayed(made, np.array(row), dim, read_at - of_row)
    eager = eager + optimizers.decayed(made, np.array(change), dim, read_at - of_change)
    np.testing.assert_allclose(lazy, eager, rtol=1e-5, atol=1e-6)


def test_a_late_change_of_state_is_refused_where_a_floor_may_have_stopped_its_decay() -> None:
    tier = RamTier(Table(dim=1, optimizer=Adagrad(swap=Swap(period=PERIOD, decay=0.5, floor=1.0))))
    row_at(tier, [4.0], period=2)
    one = np.ones((1, 1), np.float32)
    with pytest.raises(InputError, match=r"samples=19: .* SWAP period 1 .* floor"):
        tier.add(KEY, one, one, samples=19)
    assert state_of(tier) == ([4.0], 2)
    assert tier.versions(KEY) == [1]
    tier.add(KEY, one, one, samples=20)
    assert state_of(tier) == ([5.0], 2)


def test_a_table_that_is_attached_to_goes_on_in_the_period_of_its_rows(tmp_path: Path) -> None:
    swap = Swap(period=PERIOD, decay=0.5)
    segment = Segment(run="swap", directory=tmp_path, keep=True)
    table = Table(dim=1, optimizer=Adagrad(initial=16.0, swap=swap), segment=segment)
    first = RamTier(table)
    first.find_or_init(KEY, samples=3 * PERIOD)
    first.close()
    second = RamTier(table)
    second.find_or_init(KEY + np.uint64(1))
    second.apply(KEY + np.uint64(1), np.zeros((1, 1), np.float32), samples=4 * PERIOD)
    (rows,) = second.export()
    assert dict(zip(rows.keys.tolist(), rows.state.ravel().tolist(), strict=True)) == {7: 16.0, 8: 8.0}
    second.close()
