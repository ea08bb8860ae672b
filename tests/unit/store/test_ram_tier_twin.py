"""Random histories: the RAM tier and its slow twin go through the same operations and stay the same table.

Gradients and weights are multiples of 1/8 and of 1/2, so the sums of duplicates are exact in float32 and the twin's
float64 sums are the same numbers: what remains is the rounding of the optimizers.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from hotrow import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, RowwiseAdagrad, Swap, Table, Uniform
from hotrow.store import LookupPlan, RamTier
from oracles.optimizers import Spec, swap_of
from oracles.store import TwinApplied, TwinTier
from profiles import examples

F32 = NDArray[np.float32]
POOL = [0, 1, 2, 3, 7, 2**32, 2**32 + 1, 3 << 52, 5 << 52, 2**63, 2**64 - 2, 2**64 - 1]

swaps = st.none() | st.builds(
    Swap,
    period=st.integers(1, 20),
    decay=st.sampled_from([0.5, 0.9, 1.0]),
    floor=st.sampled_from([None, 0.0, 0.25, 4.0]),
)
common = {
    "l2": st.sampled_from([0.0, 0.1]),
    "decay": st.sampled_from([0.0, 0.2]),
    "clip": st.sampled_from([None, 0.75, 5.0]),
}
adagrad = {"initial": st.sampled_from([0.0, 0.5]), "eps": st.sampled_from([1e-10, 0.1]), "eps_inside": st.booleans()}
specs: st.SearchStrategy[Spec] = st.one_of(
    st.builds(SGD, **common),
    st.builds(Adagrad, **common, **adagrad, swap=swaps),
    st.builds(RowwiseAdagrad, **common, **adagrad, swap=swaps),
    st.builds(DecayedAdagrad, **common, **adagrad, rate=st.sampled_from([0.5, 0.999999])),
    st.builds(Adam, **common, lr=st.just(0.01), correction=st.sampled_from(["row", "global"]), swap=swaps),
    st.builds(
        FTRL,
        **{**common, "l2": st.sampled_from([0.0, 1.0])},
        l1=st.sampled_from([0.0, 0.25]),
        initial=st.sampled_from([0.0, 0.5]),
    ),
)
keys_of = st.lists(st.sampled_from(POOL), max_size=14)
seeds = st.integers(0, 2**32 - 1)
flags = st.booleans()
gaps = st.integers(0, 25)  # samples between two changes
pers = st.sampled_from(["key", "unique"])


def as_keys(keys: list[int]) -> NDArray[np.uint64]:
    return np.array(keys, np.uint64)


class Histories(RuleBasedStateMachine):
    tier: RamTier
    twin: TwinTier

    @initialize(
        spec=specs,
        dim=st.sampled_from([1, 2, 5, 16, 19]),
        partitions=st.sampled_from([1, 2, 32]),
        threads=st.sampled_from([1, 2]),
        seed=st.integers(0, 3),
    )
    def start(self, spec: Spec, dim: int, partitions: int, threads: int, seed: int) -> None:
        table = Table(dim=dim, optimizer=spec, init=Uniform(bound=0.5), seed=seed, clock=True, last_seen=True)
        self.tier = RamTier(table, threads=threads, partitions=partitions)
        self.twin = TwinTier(table, self.tier.first_values)
        self.kept: list[tuple[LookupPlan, list[int]]] = []
        self.samples = 0
        self.told = 0  # to a touch, which runs ahead
        self.step = 0

    # Lookups

    @rule(keys=keys_of, per=pers, keep=flags)
    def find(self, keys: list[int], per: Any, keep: bool) -> None:
        batch = self.tier.batch(as_keys(keys))
        out = self._buffer(batch, per)
        assert self.tier.find(batch, out, per=per) is batch or len(batch) == len(keys)
        expected, absent = self.twin.find(keys)
        self._same_values(self._by_key(batch, out, per), expected)
        assert batch.absent == len(absent)
        assert batch.absent_mask().tolist() == [key in absent for key in keys]
        if keep:
            self.kept.append((batch, keys))

    @rule(keys=keys_of, per=pers, keep=flags, told=flags)
    def find_or_init(self, keys: list[int], per: Any, keep: bool, told: bool) -> None:
        batch = self.tier.batch(as_keys(keys))
        out = self._buffer(batch, per)
        samples = self.samples if told else None
        self.tier.find_or_init(batch, out, per=per, samples=samples)
        self._same_values(self._by_key(batch, out, per), self.twin.find_or_init(keys, samples)[0])
        if keep:
            self.kept.append((batch, keys))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def find_kept(self, data: st.DataObject) -> None:
        batch, keys = data.draw(st.sampled_from(self.kept))
        out = np.zeros((len(keys), self.tier.dim), np.float32)
        self.tier.find(batch, out)
        self._same_values(out, self.twin.find(keys)[0])

    # Changes

    @rule(keys=keys_of, seed=seeds, weighted=flags, shared=flags, bad=flags, ahead=gaps)
    def apply(self, keys: list[int], seed: int, weighted: bool, shared: bool, bad: bool, ahead: int) -> None:
        self._apply(as_keys(keys), keys, seed, weighted, shared, bad, ahead)

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), seed=seeds, weighted=flags, ahead=gaps)
    def apply_kept(self, data: st.DataObject, seed: int, weighted: bool, ahead: int) -> None:
        batch, keys = data.draw(st.sampled_from(self.kept))
        self._apply(batch, keys, seed, weighted, False, False, ahead)

    @rule(keys=keys_of, seed=seeds, ahead=gaps)
    def apply_per_unique(self, keys: list[int], seed: int, ahead: int) -> None:
        batch = self.tier.batch(as_keys(keys))
        gradients = self._eighths(seed, batch.unique, self.tier.dim)
        self._advance(ahead)
        ours = self.tier.apply(batch, gradients, step=self.step, samples=self.samples, per="unique")
        unique = [int(key) for key in batch.keys]
        self._same_counts(ours, self.twin.apply(unique, gradients, step=self.step, samples=self.samples))

    @rule(keys=keys_of, seed=seeds, with_state=flags, clocked=flags, bad=flags, ahead=gaps, behind=gaps | st.just(0))
    def add(
        self, keys: list[int], seed: int, with_state: bool, clocked: bool, bad: bool, ahead: int, behind: int
    ) -> None:
        self._advance(ahead)
        generator = np.random.default_rng(seed)
        values = self._eighths(seed, len(keys), self.tier.dim)
        state = self._moments(seed, len(keys)) if with_state else None
        clocks = generator.integers(0, 9, len(keys), np.uint32) if clocked else None
        if bad:
            self._spoil(generator, values if state is None or generator.random() < 0.5 else state)
        swap = swap_of(self.tier.table.optimizer)
        if swap is not None and swap.floor:  # a change of state from an earlier period is refused then
            behind = 0
        samples = max(0, max(self.samples, self.told) - behind)
        ours = self.tier.add(as_keys(keys), values, state, step=self.step, samples=samples, clocks=clocks)
        theirs = self.twin.add(keys, values, state, step=self.step, samples=samples, clocks=clocks)
        self._same_counts(ours, theirs)

    @rule(keys=keys_of.map(lambda keys: list(dict.fromkeys(keys))), seed=seeds, with_state=flags)
    def put(self, keys: list[int], seed: int, with_state: bool) -> None:
        values = self._eighths(seed, len(keys), self.tier.dim)
        state = self._moments(seed, len(keys)) if with_state else None
        named = state is not None and "period" in self.tier.fields and seed % 2 == 0
        fields = {"period": np.full(len(keys), self.twin.period, np.uint32)} if named else None
        self.tier.put(as_keys(keys), values, state, fields)
        self.twin.put(keys, values, state)

    @rule(keys=keys_of)
    def touch(self, keys: list[int]) -> None:
        samples = 1024 * self.step + 1023  # a tick is 1024 samples, and begun ones do not count
        self.told = samples
        assert self.tier.touch(as_keys(keys), samples) == self.twin.touch(keys, samples)

    @rule(keys=keys_of)
    def erase(self, keys: list[int]) -> None:
        assert self.tier.erase(as_keys(keys)) == self.twin.erase(keys)

    # What must hold after every operation

    @invariant()
    def is_sound(self) -> None:
        if hasattr(self, "tier"):
            assert self.tier.verify() == []

    @invariant()
    def holds_the_same_rows(self) -> None:
        if not hasattr(self, "tier"):
            return
        assert len(self.tier) == len(self.twin)
        assert self.tier.versions(as_keys(POOL)).tolist() == self.twin.versions(POOL)
        assert self.tier.clocks(as_keys(POOL)).tolist() == self.twin.clocks(POOL)
        assert self.tier.last_updates(as_keys(POOL)).tolist() == self.twin.last_updates(POOL)
        stats = self.tier.stats()
        assert (stats.rows, stats.created, stats.erased, stats.refused) == (
            len(self.twin),
            self.twin.created,
            self.twin.erased,
            self.twin.refused,
        )
        self._same_export()

    def _same_export(self) -> None:
        left = self.twin.export()
        for chunk in self.tier.export(rows=3):
            for i, key in enumerate(chunk.keys.tolist()):
                row, fields = left.pop(key), {name: int(column[i]) for name, column in chunk.fields.items()}
                self._same_values(chunk.values[i], row.value)
                state = self.twin.settled(chunk.state[i], fields.get("period", 0))
                # FTRL's z is a small difference of terms as large as its other elements, in float32
                scale = max(1.0, float(np.abs(row.state).max(initial=0.0)))
                np.testing.assert_allclose(state, row.state, rtol=1e-4, atol=1e-5 * scale)
                assert (fields["version"], fields["last_update"]) == (row.version, row.last_update)
                assert (fields["clock"], fields["last_seen"]) == (row.clock, row.last_seen)
                assert fields.get("updates", row.updates) == row.updates
        assert not left

    # Helpers

    def _apply(
        self, target: Any, keys: list[int], seed: int, weighted: bool, shared: bool, bad: bool, ahead: int
    ) -> None:
        self._advance(ahead)
        generator = np.random.default_rng(seed)
        gradients = self._eighths(seed, 3 if shared else len(keys), self.tier.dim)
        if bad:
            self._spoil(generator, gradients)
        options: dict[str, Any] = {"step": self.step, "samples": self.samples}
        if shared:
            options["rows"] = generator.integers(0, 3, len(keys))
        if weighted:
            options["weights"] = generator.choice(np.array([-0.5, 0.5, 1, 2], np.float32), len(keys))
        self._same_counts(self.tier.apply(target, gradients, **options), self.twin.apply(keys, gradients, **options))

    def _advance(self, ahead: int) -> None:
        self.step += 1
        self.samples += ahead

    def _eighths(self, seed: int, count: int, dim: int) -> F32:
        return (np.random.default_rng(seed).integers(-24, 25, (count, dim)) / 8).astype(np.float32)

    def _spoil(self, generator: np.random.Generator, numbers: F32) -> None:
        if numbers.size:
            numbers.flat[generator.integers(numbers.size)] = generator.choice([np.nan, np.inf, -np.inf, 1e30])

    def _moments(self, seed: int, count: int) -> F32:
        return np.abs(self._eighths(seed + 1, count, self.tier.state_dim))

    def _buffer(self, batch: LookupPlan, per: str) -> F32:
        return np.zeros((len(batch) if per == "key" else batch.unique, self.tier.dim), np.float32)

    def _by_key(self, batch: LookupPlan, out: F32, per: str) -> F32:
        return out if per == "key" else out[batch.inverse]

    def _same_values(self, ours: F32, theirs: F32) -> None:
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    def _same_counts(self, ours: Any, theirs: TwinApplied) -> None:
        assert (ours.rows, ours.refused, ours.absent) == (theirs.rows, theirs.refused, theirs.absent)


def test_random_histories_leave_the_same_table() -> None:
    run_state_machine_as_test(Histories, settings=settings(max_examples=examples(150), stateful_step_count=30))


@pytest.mark.slow
def test_many_long_histories_leave_the_same_table() -> None:
    run_state_machine_as_test(Histories, settings=settings(max_examples=examples(2000), stateful_step_count=50))
