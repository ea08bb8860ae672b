"""Batches of nodes with sampled neighbours, for models over graphs.

A graph is made from edges between nodes of any 64-bit ids. A sample is a node, a fixed number of its neighbours, of
theirs, and so on; all ids are keys of one table.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hotrow.data.batch import F32, I64, Batch, FeatureBlock
from hotrow.errors import ConfigError, InputError
from hotrow.spec import whole_number


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Neighbours of all nodes, one node's behind the other's. Inside, a node goes by its place in `ids`."""

    ids: I64  # [nodes], rising
    starts: I64  # [nodes + 1]
    neighbours: I64  # [edges] places; those of the node at place k are from starts[k] up to starts[k + 1]

    @classmethod
    def of_edges(
        cls, sources: ArrayLike, targets: ArrayLike, *, nodes: ArrayLike = (), both_ways: bool = True
    ) -> "Graph":
        """From two arrays of ids. `nodes` adds nodes that may have no edge; an edge given twice counts twice."""
        left, right, more = _ids("sources", sources), _ids("targets", targets), _ids("nodes", nodes)
        if len(left) != len(right):
            raise InputError(f"{len(left)} sources and {len(right)} targets: an edge needs one of each")
        ids, places = np.unique(np.concatenate([left, right, more]), return_inverse=True)
        start, end = places[: len(left)], places[len(left) : 2 * len(left)]
        if both_ways:
            start, end = np.concatenate([start, end]), np.concatenate([end, start])
        starts = np.concatenate([[0], np.bincount(start, minlength=len(ids)).cumsum()])
        return cls(ids, starts, end[np.argsort(start, kind="stable")])

    def __len__(self) -> int:
        return len(self.ids)

    def places(self, ids: ArrayLike) -> I64:
        """The positions of nodes in `ids`."""
        wanted = _ids("nodes", ids)
        found = np.searchsorted(self.ids, wanted)
        known = found < len(self.ids)
        known[known] = self.ids[found[known]] == wanted[known]
        if not known.all():
            raise InputError(f"node {wanted[~known][0]}: the graph has no such node ({(~known).sum()} of them)")
        return found

    def degrees(self, places: I64) -> I64:
        """Neighbours of each."""
        return self.starts[places + 1] - self.starts[places]

    def drawn(self, places: I64, fan_out: int, rng: np.random.Generator) -> I64:
        """[places, fan_out]: neighbours drawn uniformly; a node without any is its own neighbour.

        All different where a node has enough of them, else with repetition.
        """
        degrees = self.degrees(places)
        draws = rng.random((fan_out, len(places)))
        picks = (draws * degrees).astype(np.int64)
        enough = degrees >= fan_out
        picks[:, enough] = _different(draws[:, enough], degrees[enough])
        picks += self.starts[places]
        alone = degrees == 0
        picks[:, alone] = 0
        found = self.neighbours[picks] if len(self.neighbours) else picks
        found[:, alone] = places[alone]
        return np.ascontiguousarray(found.T)


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhoods:
    """Nodes with `fan_outs[k]` neighbours drawn for every node of hop k, as batches for `hotrow.models.GraphSAGE`.

    The features are "node", "hop1", "hop2" and so on. Equal seed, epoch and size give equal batches.
    """

    graph: Graph
    fan_outs: tuple[int, ...] = (25, 10)
    table: str = "node"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.fan_outs:
            raise ConfigError("fan_outs=(): give the number of neighbours for one hop or more")
        for fan_out in self.fan_outs:
            whole_number("fan_outs", fan_out, 1, 65_536)
        whole_number("seed", self.seed, 0, 2**63)

    def batch(self, nodes: ArrayLike, rng: np.random.Generator, classes: ArrayLike | None = None) -> Batch:
        """The nodes of these ids; `classes` are the numbers of their classes. Nodes without neighbours are counted."""
        places = self.graph.places(nodes)
        count = len(places)
        parts = [FeatureBlock(self.table, "one", ("node",), self.graph.ids[places])]
        alone = int((self.graph.degrees(places) == 0).sum())
        for hop, fan_out in enumerate(self.fan_outs, 1):
            places = self.graph.drawn(places, fan_out, rng).reshape(-1)
            bounds = np.arange(count + 1) * (len(places) // max(count, 1))
            parts.append(FeatureBlock(self.table, "sequence", (f"hop{hop}",), self.graph.ids[places], bounds))
        labels = None if classes is None else _class_numbers(classes, count)
        counts = {"nodes_without_neighbours": alone} if alone else {}
        return Batch(tuple(parts), np.zeros((count, 0), np.float32), labels, counts=counts)

    def batches(
        self, nodes: ArrayLike, classes: ArrayLike | None = None, *, size: int, epoch: int = 0, shuffle: bool = False
    ) -> Iterator[Batch]:
        """All these nodes once; the last batch may be short. Another epoch draws other neighbours."""
        size = whole_number("size", size, 1, 2**31)
        ids = _ids("nodes", nodes)
        labels = None if classes is None else _class_numbers(classes, len(ids))[:, 0]
        order = np.arange(len(ids))
        if shuffle:
            np.random.default_rng([self.seed, epoch]).shuffle(order)
        for number, start in enumerate(range(0, len(ids), size)):
            these = order[start : start + size]
            rng = np.random.default_rng([self.seed, epoch, number])
            yield self.batch(ids[these], rng, None if labels is None else labels[these])


def _different(draws: NDArray[np.float64], degrees: I64) -> I64:
    """Distinct numbers below each degree, [fan_out, nodes], every subset alike (Floyd's sampling, a round per pick)."""
    fan_out = len(draws)
    picks = np.empty(draws.shape, np.int64)
    for pick, draw in enumerate(draws):
        last = degrees - fan_out + pick
        new = (draw * (last + 1)).astype(np.int64)
        taken = (picks[:pick] == new).any(0)
        picks[pick] = np.where(taken, last, new)
    return picks


def _ids(name: str, values: ArrayLike) -> I64:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{name} is {array.dtype} {array.shape}: must be whole numbers in one dimension")
    return array.view(np.int64) if array.dtype == np.uint64 else array.astype(np.int64)


def _class_numbers(values: ArrayLike, count: int) -> F32:
    array = np.asarray(values)
    if array.shape != (count,) or array.dtype.kind not in "iuf":
        raise InputError(f"classes is {array.dtype} {array.shape} for {count} nodes: give each the number of its class")
    if wrong := [value for value in np.unique(array).tolist() if not (0 <= value < 2**24 and value == int(value))]:
        raise InputError(f"class {wrong[0]}: must be a whole number from 0 to {2**24 - 1:,}")
    return array.astype(np.float32)[:, None]
