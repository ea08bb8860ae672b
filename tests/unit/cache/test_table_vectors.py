"""Vectors of cached rows and sums of their gradients are the same on a device and in host memory, id by id.

On a GPU where there is one, else in Triton's interpreter or in torch.
"""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.cache.device_copies import DeviceCopies
from hotrow.cache.table_vectors import DeviceVectors, HostVectors, TableVectors
from hotrow.store.shards import sharded
from unit.client.test_sharded_tables import batch_of

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SAMPLES, DIM = 5, 3

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes idle lanes


def give_gradients(vectors: TableVectors, used: Sequence[bool]) -> None:
    chance = np.random.default_rng(1)
    for output, there in zip(vectors.outputs, used, strict=True):
        gradient = torch.tensor(chance.standard_normal(tuple(output.rows.shape)), dtype=torch.float32)
        if output.mask is not None:
            gradient *= output.mask.cpu()[..., None]
        output.rows.grad = gradient.to(output.rows.device) if there else None


@pytest.mark.parametrize("table", ["a", "b"])
@pytest.mark.parametrize("used", [(True, True), (True, False), (False, True), (False, False)])
def test_vectors_and_sums_are_those_of_host_memory(table: str, used: tuple[bool, bool]) -> None:
    parts = [part for part in batch_of(SAMPLES, 3).parts if part.table == table]
    ids = sharded(np.concatenate([part.keys for part in parts]), 2)
    rows = np.random.default_rng(2).standard_normal((len(ids.keys), DIM)).astype(np.float32)
    there = HostVectors(parts, ids, rows, SAMPLES, 1)
    here = DeviceVectors(parts, ids, torch.tensor(rows, device=DEVICE), SAMPLES, DeviceCopies(DEVICE))
    for ours, theirs in zip(here.outputs, there.outputs, strict=True):
        assert ours.rows.is_leaf
        assert ours.rows.device.type == DEVICE.type
        torch.testing.assert_close(ours.rows.cpu(), theirs.rows, rtol=1e-6, atol=1e-6)
        assert (ours.mask is None) == (theirs.mask is None)
    give_gradients(here, used)
    give_gradients(there, used)
    found, expected = here.sums(), there.sums()
    if expected is None or found is None:
        assert found is None
        assert expected is None
        assert not any(used)
        return
    (sums, mine), (wanted, others) = found, expected
    if others is None:
        assert mine is None
        np.testing.assert_allclose(sums.cpu().numpy(), wanted, rtol=1e-5, atol=1e-6)
        return
    assert mine is not None
    np.testing.assert_array_equal(mine, others)
    np.testing.assert_allclose(sums.cpu().numpy()[others], wanted[others], rtol=1e-5, atol=1e-6)
