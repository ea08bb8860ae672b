"""Dense parameters that are spread over shards: one that got none is sent no gradients, and waits for none."""

import pytest
import torch
from torch import nn

from hotrow.errors import InputError
from hotrow.server.dense_shard import DenseShard, spread
from hotrow.transport.messages import ApplyOrder, OrderPart


def piece(places: list[int], *, buffers: bool) -> DenseShard:
    model = nn.Linear(4, 1, bias=False)
    return DenseShard(model, torch.optim.SGD(model.parameters(), lr=1.0), places, buffers=buffers)


def step() -> ApplyOrder:
    return ApplyOrder("both", 0, 4, 1.0, (OrderPart(1, 0, 0, 4, 1.0),))


def test_a_shard_without_tensors_needs_no_gradients_for_a_step() -> None:
    """As of a model with one parameter on two shards, or with `clip`, which keeps all tensors on one."""
    assert spread([4], 2) == [[0], []]
    assert spread([4, 4], 2, together=True) == [[0, 1], []]
    assert piece([], buffers=False).apply(step()) == ([], 0)


@pytest.mark.parametrize(("places", "buffers"), [([0], False), ([], True)])
def test_any_other_shard_misses_gradients_that_never_arrived(places: list[int], buffers: bool) -> None:
    with pytest.raises(InputError, match="grant=1: its dense gradients never arrived"):
        piece(places, buffers=buffers).apply(step())
