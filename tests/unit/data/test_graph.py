"""Graphs from edges, and neighbours drawn from them: who is drawn, how often, and how it lies in a batch."""

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data.graph import Graph, Neighbourhoods
from hotrow.errors import ConfigError, InputError

STAR = Graph.of_edges([0, 0, 0, 0], [1, 2, 3, 4], nodes=[9])  # 9 has no edge
EDGES = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), max_size=30)


def around(graph: Graph, node: int) -> list[int]:
    """All neighbours of a node, by id."""
    (place,) = graph.places([node])
    return sorted(graph.ids[graph.neighbours[graph.starts[place] : graph.starts[place + 1]]].tolist())


@given(EDGES, st.lists(st.integers(-9, 9), max_size=5), st.booleans())
def test_a_graph_holds_every_edge_it_was_given(edges: list[tuple[int, int]], more: list[int], both_ways: bool) -> None:
    graph = Graph.of_edges([a for a, _ in edges], [b for _, b in edges], nodes=more, both_ways=both_ways)
    expected: dict[int, list[int]] = {node: [] for node in more}
    for left, right in edges:
        expected.setdefault(left, []).append(right)
        expected.setdefault(right, [])
        if both_ways:
            expected[right].append(left)
    assert graph.ids.tolist() == sorted(expected)
    assert len(graph) == len(expected)
    for node, neighbours in expected.items():
        assert around(graph, node) == sorted(neighbours)


def test_ids_may_be_any_64_bits() -> None:
    graph = Graph.of_edges(np.array([2**64 - 1, 2**63], np.uint64), np.array([5, 5], np.uint64))
    assert graph.ids.tolist() == [-(2**63), -1, 5]
    assert around(graph, 5) == [-(2**63), -1]


@given(EDGES.filter(bool), st.integers(1, 6), st.integers(0, 100))
def test_what_is_drawn_is_a_neighbour_and_no_edge_comes_twice_where_there_are_enough(
    edges: list[tuple[int, int]], fan_out: int, seed: int
) -> None:
    graph = Graph.of_edges([a for a, _ in edges], [b for _, b in edges], nodes=[77])
    places = np.arange(len(graph))
    drawn = graph.drawn(places, fan_out, np.random.default_rng(seed))
    assert drawn.shape == (len(graph), fan_out)
    for place, node in enumerate(graph.ids.tolist()):
        there = Counter(around(graph, node)) or Counter([node])
        found = Counter(graph.ids[drawn[place]].tolist())
        assert found.keys() <= there.keys()
        if there.total() >= fan_out:
            assert all(found[neighbour] <= there[neighbour] for neighbour in found)


@pytest.mark.parametrize("fan_out", [1, 2, 3, 4])
def test_every_set_of_neighbours_comes_as_often(fan_out: int) -> None:
    """Node 0 has four: chi squared over all sets of fan_out of them."""
    rounds = 6000
    drawn = STAR.drawn(np.zeros(rounds, np.int64), fan_out, np.random.default_rng(0))
    counts = Counter(tuple(sorted(row)) for row in drawn.tolist())
    sets = list(combinations([1, 2, 3, 4], fan_out))
    assert counts.keys() == set(sets)
    expected = rounds / len(sets)
    assert sum((counts[each] - expected) ** 2 / expected for each in sets) < 22  # 5 degrees of freedom: p = .0005


def test_more_than_there_are_are_drawn_with_repetition_and_evenly() -> None:
    drawn = STAR.drawn(np.zeros(2000, np.int64), 5, np.random.default_rng(0))
    counts = np.bincount(drawn.reshape(-1), minlength=5)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 2500) < 200).all()
    assert any(len(set(row)) < 4 for row in drawn.tolist())


def test_an_edge_given_twice_counts_twice() -> None:
    graph = Graph.of_edges([0, 0, 0], [1, 1, 2])
    drawn = graph.drawn(np.zeros(3000, np.int64), 1, np.random.default_rng(0))
    assert abs(float((drawn == 1).mean()) - 2 / 3) < 0.03


def test_a_batch_holds_the_node_and_exactly_the_fan_outs_of_each_hop() -> None:
    sampler = Neighbourhoods(STAR, fan_outs=(3, 2), table="pages")
    batch = sampler.batch([0, 2, 9], np.random.default_rng(0), classes=[1, 0, 3])
    node, near, far = batch.parts
    assert [(part.table, part.kind, part.features) for part in batch.parts] == [
        ("pages", "one", ("node",)),
        ("pages", "sequence", ("hop1",)),
        ("pages", "sequence", ("hop2",)),
    ]
    assert node.keys.tolist() == [0, 2, 9]
    assert near.bounds is not None
    assert far.bounds is not None
    assert near.bounds.tolist() == [0, 3, 6, 9]
    assert far.bounds.tolist() == [0, 6, 12, 18]
    assert near.keys[3:].tolist() == [0, 0, 0, 9, 9, 9]  # 2 has one neighbour; 9 has none and stands for its own
    assert far.keys[:6].tolist() == [0] * 6  # all neighbours of 0 have 0 alone
    assert set(far.keys[6:12].tolist()) <= {1, 2, 3, 4}
    assert batch.numbers.shape == (3, 0)
    assert batch.labels is not None
    assert batch.labels.tolist() == [[1], [0], [3]]
    assert batch.counts == {"nodes_without_neighbours": 1}


def test_neighbours_of_a_neighbour_lie_behind_it() -> None:
    """On a ring each node's neighbours are known: hop 2's place 2k and 2k + 1 belong to hop 1's place k."""
    ring = Graph.of_edges(np.arange(10), (np.arange(10) + 1) % 10)
    batch = Neighbourhoods(ring, fan_outs=(2, 2)).batch(np.arange(10), np.random.default_rng(0))
    near, far = batch.parts[1].keys.reshape(10, 2), batch.parts[2].keys.reshape(10, 2, 2)
    for node in range(10):
        assert set(near[node].tolist()) == {(node - 1) % 10, (node + 1) % 10}
        for place in range(2):
            assert set(far[node, place].tolist()) == {(near[node, place] - 1) % 10, (near[node, place] + 1) % 10}


def keys(sampler: Neighbourhoods, **settings: Any) -> list[list[int]]:
    batches = sampler.batches(np.arange(5), [0, 1, 2, 3, 4], **settings)
    return [[key for part in batch.parts for key in part.keys.tolist()] for batch in batches]


def test_batches_are_the_same_for_the_same_seed_and_epoch_alone() -> None:
    sampler = Neighbourhoods(STAR, fan_outs=(4, 2), seed=1)
    assert keys(sampler, size=2, epoch=3) == keys(sampler, size=2, epoch=3)
    assert keys(sampler, size=2, epoch=3) != keys(sampler, size=2, epoch=4)
    assert keys(sampler, size=2) != keys(Neighbourhoods(STAR, fan_outs=(4, 2), seed=2), size=2)


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_hold_all_nodes_once_with_their_classes(shuffle: bool) -> None:
    batches = list(Neighbourhoods(STAR, fan_outs=(2,)).batches(np.arange(5), np.arange(5), size=2, shuffle=shuffle))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    nodes = [key for batch in batches for key in batch.parts[0].keys.tolist()]
    labels = [float(label) for batch in batches if batch.labels is not None for label in batch.labels[:, 0]]
    assert labels == nodes
    assert sorted(nodes) == [0, 1, 2, 3, 4]
    assert (nodes == [0, 1, 2, 3, 4]) is not shuffle


def test_no_nodes_and_no_edges_are_welcome() -> None:
    empty = Graph.of_edges([], [])
    assert len(empty) == 0
    assert list(Neighbourhoods(empty).batches([], size=4)) == []
    batch = Neighbourhoods(STAR, fan_outs=(2,)).batch([], np.random.default_rng(0))
    assert len(batch) == 0
    assert batch.labels is None
    alone = Graph.of_edges([], [], nodes=[3, 4])
    assert alone.drawn(np.array([1, 0]), 2, np.random.default_rng(0)).tolist() == [[1, 1], [0, 0]]


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(InputError, match="2 sources and 1 targets: an edge needs one of each"):
        Graph.of_edges([1, 2], [3])
    with pytest.raises(InputError, match=r"sources is float64 \(1,\): must be whole numbers in one dimension"):
        Graph.of_edges([1.5], [3])
    with pytest.raises(InputError, match=r"targets is int64 \(1, 1\)"):
        Graph.of_edges([1], [[3]])
    with pytest.raises(InputError, match=r"node 5: the graph has no such node \(2 of them\)"):
        STAR.places([0, 5, 10, 9])
    with pytest.raises(ConfigError, match=r"fan_outs=\(\): give the number of neighbours"):
        Neighbourhoods(STAR, fan_outs=())
    with pytest.raises(ConfigError, match="fan_outs=0: must be from 1"):
        Neighbourhoods(STAR, fan_outs=(3, 0))
    with pytest.raises(ConfigError, match="seed=-1: must be from 0"):
        Neighbourhoods(STAR, seed=-1)
    with pytest.raises(ConfigError, match="size=0: must be from 1"):
        list(Neighbourhoods(STAR).batches([0], size=0))


@pytest.mark.parametrize("wrong", [-1, 0.5, float("nan"), 2**24])
def test_a_class_is_a_whole_number_that_float32_holds(wrong: float) -> None:
    with pytest.raises(InputError, match=r"class .*: must be a whole number from 0 to 16,777,215"):
        Neighbourhoods(STAR).batch([0, 1], np.random.default_rng(0), classes=[0, wrong])
    with pytest.raises(InputError, match=r"classes is .* \(1,\) for 2 nodes: give each the number of its class"):
        Neighbourhoods(STAR).batch([0, 1], np.random.default_rng(0), classes=[0])
    kept = Neighbourhoods(STAR).batch([0], np.random.default_rng(0), classes=[2**24 - 1]).labels
    assert kept is not None
    assert kept.tolist() == [[2**24 - 1]]
