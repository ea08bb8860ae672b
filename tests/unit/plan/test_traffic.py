"""Bytes of lookups and pushes are those that a client of shards counts; dense ones those of a ring."""

import pytest

from hotrow.client.sharded import PushFacts
from hotrow.plan.traffic import dense_traffic, row_traffic, vector_bytes
from hotrow.types import Values
from unit.client.test_sharded_tables import batch_of, cluster
from unit.worker.embedding_threads import TABLES, give_gradients


@pytest.mark.parametrize("values", ["fp32", "fp16-scaled"])
def test_rows_and_gradients_take_the_bytes_that_a_client_counts(values: Values) -> None:
    with cluster(2, dict.fromkeys(TABLES, values)) as (client, _, _):
        handle = client.lookup(batch_of(64, seed=3), learn=True)
        give_gradients(handle, seed=5)
        client.push(client.gradients(handle, PushFacts(1, 0, 0, 0))).taken()
        unique = {table: len(found.keys) for table, found in handle.ids.items()}
        parts = [row_traffic(count, TABLES[table].dim, values) for table, count in unique.items()]
        ids, rows, gradients = (sum(each) for each in zip(*parts, strict=True))
        assert client.traffic.sent == ids + gradients
        assert client.traffic.received == rows


def test_a_vector_has_two_bytes_and_a_scale_in_halves() -> None:
    assert (vector_bytes(16, "fp32"), vector_bytes(16, "fp16-scaled")) == (64, 36)


def test_a_ring_sends_twice_the_gradients_but_for_the_part_of_its_own() -> None:
    assert dense_traffic(1000, 4) == 2 * 3 / 4 * 4000
    assert dense_traffic(1000, 1) == 0, "nothing to add up"
