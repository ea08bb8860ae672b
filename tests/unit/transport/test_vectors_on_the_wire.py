"""Vectors reach a trainer, and their gradients come back, as if the rows were in its own process."""

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotrow.client import LocalTables
from hotrow.client.base import FeatureVectors
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.transport.ids import pack_ids, unpack_ids
from hotrow.transport.messages import Vectors
from hotrow.transport.vectors import pack_gradients, pack_vectors, plain_bytes, unpack_gradients, unpack_vectors
from hotrow.types import Values
from unit.worker.embedding_threads import TABLES, batch_of, give_gradients, rows_of, without_ids

DIMS = {name: table.dim for name, table in TABLES.items()}
NARROW: dict[str, Values] = {"a": "fp16-scaled", "b": "fp16-scaled"}


def views(frames: list[Any]) -> list[memoryview]:
    return [memoryview(np.asarray(frame).tobytes()) for frame in frames]


def given_to_trainer(
    batch: Batch, outputs: tuple[FeatureVectors, ...], values: dict[str, Values]
) -> tuple[FeatureVectors, ...]:
    heads, frames = pack_vectors(outputs, values)
    return unpack_vectors(len(batch), heads, views(frames), without_ids(batch).parts, DIMS)


def taken_back(
    theirs: tuple[FeatureVectors, ...], outputs: tuple[FeatureVectors, ...], values: dict[str, Values]
) -> None:
    heads, frames = pack_gradients(theirs, values)
    unpack_gradients(heads, views(frames), outputs)


class Held:
    """Outputs as somebody who gives gradients wants them."""

    def __init__(self, outputs: tuple[FeatureVectors, ...], samples: int) -> None:
        self.outputs, self.samples = outputs, samples


@given(st.integers(1, 12), st.integers(0, 1_000), st.sets(st.integers(0, 3)), st.sampled_from([1, 5, 20]))
def test_rows_move_as_they_do_without_an_embedding_worker(
    samples: int, seed: int, unused: set[int], distinct: int
) -> None:
    """The core's whole way: compressed ids, lookup, vectors there, gradients back, the update."""
    here, there = LocalTables(TABLES, threads=1), LocalTables(TABLES, threads=1)
    for step in range(2):
        batch = batch_of(samples, seed + step, ids=distinct)
        direct = here.lookup(batch, learn=True)
        heads, frames = pack_ids(batch)
        looked = there.lookup(unpack_ids(samples, heads, views(list(frames))), learn=True)
        theirs = given_to_trainer(batch, looked.outputs, {})
        for ours, wanted in zip(theirs, direct.outputs, strict=True):
            torch.testing.assert_close(ours.rows, wanted.rows.detach(), rtol=1e-6, atol=1e-6)
            assert (ours.mask is None) == (wanted.mask is None)
            if ours.mask is not None and wanted.mask is not None:
                assert torch.equal(ours.mask, wanted.mask)
        give_gradients(direct, step, sorted(unused))
        give_gradients(Held(theirs, samples), step, sorted(unused))
        taken_back(theirs, looked.outputs, {})
        assert {place for place, each in enumerate(looked.outputs) if each.rows.grad is None} == unused
        here.push(direct, step=step, samples=samples * (step + 1))
        there.push(looked, step=step, samples=samples * (step + 1))
    for table in TABLES:
        torch.testing.assert_close(
            rows_of([there], table), rows_of([here], table), rtol=1e-5, atol=1e-6, equal_nan=True
        )
    here.close()
    there.close()


def test_halves_are_close_and_each_vector_has_its_own_scale() -> None:
    client, batch = LocalTables(TABLES, threads=1), batch_of(30, 1)
    outputs = client.lookup(batch, learn=True).outputs
    heads, frames = pack_vectors(outputs, NARROW)
    wide = [head for head in heads if not head.lengths]
    assert [frame.nbytes for frame in frames[:2]] == [2 * 30 * 2 * 4, 4 * 30 * 2]
    assert len(wide) == 3
    assert plain_bytes(heads) == 4 * (30 * (2 * 4 + 2 * 3 + 3) + len(batch.parts[2].keys) * 4)
    for ours, wanted in zip(given_to_trainer(batch, outputs, NARROW), outputs, strict=True):
        torch.testing.assert_close(ours.rows, wanted.rows.detach(), rtol=1e-3, atol=1e-6)
    give_gradients(Held(outputs, 30), 1)
    before = [output.rows.grad for output in outputs]
    theirs = tuple(FeatureVectors(o.part, o.rows.detach().requires_grad_(), o.mask) for o in outputs)
    for output, gradient in zip(theirs, before, strict=True):
        output.rows.grad = gradient
    taken_back(theirs, outputs, NARROW)
    for output, gradient in zip(outputs, before, strict=True):
        torch.testing.assert_close(output.rows.grad, gradient, rtol=1e-3, atol=1e-5)
    client.close()


@pytest.mark.parametrize("smaller", [1.0, 1e-9, 1e-20])
def test_a_small_vector_beside_a_large_one_is_as_close_as_a_row(smaller: float) -> None:
    """Halves have 11 bits: an element is within 2^-11 of itself while it is above 2^-28 of its vector's largest."""
    client, batch = LocalTables(TABLES, threads=1), batch_of(30, 1)
    outputs = client.lookup(batch, learn=True).outputs
    assert outputs[0].rows.shape[1] == 2
    generator = np.random.default_rng(0)
    with torch.no_grad():
        for output in outputs:
            drawn = generator.uniform(0.01, 1, output.rows.shape) * generator.choice([-1, 1], output.rows.shape)
            output.rows.copy_(torch.from_numpy(drawn))
            output.rows[:, 1:] *= smaller
    for ours, wanted in zip(given_to_trainer(batch, outputs, NARROW), outputs, strict=True):
        there = np.ones(wanted.rows.shape[:2], bool) if wanted.mask is None else wanted.mask.numpy()
        exact = wanted.rows.detach().numpy().astype(np.float64)[there]
        error = np.abs(ours.rows.numpy().astype(np.float64)[there] - exact)
        assert (error <= 2**-11 * 1.001 * np.abs(exact)).all()
    client.close()


def test_what_is_not_finite_stays_what_it_is() -> None:
    client, batch = LocalTables(TABLES, threads=1), batch_of(4, 1)
    outputs = client.lookup(batch, learn=True).outputs
    give_gradients(Held(outputs, 4), 1)
    wild = outputs[0].rows.grad
    assert wild is not None
    wild[1, 0, 0], wild[2, 1, 3] = float("nan"), float("inf")
    theirs = tuple(FeatureVectors(o.part, o.rows.detach().requires_grad_(), o.mask) for o in outputs)
    theirs[0].rows.grad = wild.clone()
    taken_back(theirs, outputs, NARROW)
    came = outputs[0].rows.grad
    assert came is not None
    assert torch.equal(torch.isfinite(came), torch.isfinite(wild))
    client.close()


def test_vectors_that_do_not_fit_are_refused_before_room_is_taken() -> None:
    client, batch = LocalTables(TABLES, threads=1), batch_of(5, 1)
    outputs = client.lookup(batch, learn=True).outputs
    parts = without_ids(batch).parts
    heads, frames = pack_vectors(outputs, {})
    good = views(frames)

    def unpack(heads: tuple[Vectors, ...], frames: list[memoryview]) -> None:
        unpack_vectors(5, heads, frames, parts, DIMS)

    unpack(heads, good)
    huge = msgspec.structs.replace(heads[2], rows=2**31)
    with pytest.raises(InputError, match=r"vectors of 'w': the frame has .* bytes, the header says"):
        unpack((*heads[:2], huge, heads[3]), good)
    with pytest.raises(InputError, match="vectors of 'x' are \\[6, 4\\], expected \\[10, 4\\]"):
        unpack((msgspec.structs.replace(heads[0], rows=6), *heads[1:]), good)
    with pytest.raises(InputError, match="vectors of 'x' are \\[10, 9\\], expected \\[10, 4\\]"):
        unpack((msgspec.structs.replace(heads[0], wide=9), *heads[1:]), good)
    with pytest.raises(InputError, match="vectors of 3 parts came, the batch has 4"):
        unpack(heads[:3], good)
    with pytest.raises(InputError, match="4 frames came for 4 parts that have 5"):
        unpack(heads, good[:-1])
    with pytest.raises(InputError, match="lengths of 'w': are missing"):
        unpack((*heads[:2], msgspec.structs.replace(heads[2], lengths=0), heads[3]), [*good[:3], good[4]])
    longer = np.frombuffer(good[3], np.uint8).copy()
    longer[0] += 1
    with pytest.raises(InputError, match="lengths of 'w': add up to"):
        unpack(heads, [*good[:3], memoryview(longer.tobytes()), good[4]])
    with pytest.raises(InputError, match="lengths of 'w': the frame has 4 bytes, 5 samples have 1 each"):
        unpack(heads, [*good[:3], good[3][1:], good[4]])
    client.close()


def test_gradients_that_do_not_fit_change_nothing() -> None:
    client, batch = LocalTables(TABLES, threads=1), batch_of(5, 1)
    outputs = client.lookup(batch, learn=True).outputs
    give_gradients(Held(outputs, 5), 1)
    heads, frames = pack_gradients(outputs, {})
    for output in outputs:
        output.rows.grad = None
    last = msgspec.structs.replace(heads[3], rows=4)
    with pytest.raises(InputError, match="vectors of 'v' are \\[4, 3\\], expected \\[5, 3\\]"):
        unpack_gradients((*heads[:3], last), views(frames), outputs)
    assert all(output.rows.grad is None for output in outputs)
    client.close()
