"""GraphSAGE beside its formula as loops over nodes in float64."""

import math

import numpy as np
import pytest
import torch

from hotrow.errors import ConfigError, InputError
from hotrow.models.graphsage import GraphSAGE
from hotrow.nn.inputs import Inputs, InputShape, SequenceRows
from unit.models.made_inputs import GRAPH, Vector, array, made, stirred


def state(model: GraphSAGE, layer: int, own: Vector, neighbours: list[Vector]) -> Vector:
    linear = model.layers[layer]
    mean = sum(neighbours, np.zeros_like(neighbours[0])) / len(neighbours)
    values = np.maximum(array(linear.weight) @ np.concatenate([own, mean]) + array(linear.bias), 0)
    length = math.sqrt(float(values @ values))
    return np.asarray(values / max(length, 1e-12)) if model.normalise else values


@pytest.mark.parametrize("normalise", [True, False])
def test_a_node_is_itself_and_the_mean_of_what_is_around_it(normalise: bool) -> None:
    model = stirred(GraphSAGE(GRAPH, classes=4, hidden=6, normalise=normalise))
    x = made(GRAPH)
    expected = []
    for sample in range(len(x)):
        node = array(x["node"][sample])
        near, far = array(x.sequence("hop1").rows[sample]), array(x.sequence("hop2").rows[sample])
        behind = [[far[3 * place + k] for k in range(3)] for place in range(2)]  # neighbours of hop 1's nodes
        first = state(model, 0, node, list(near))
        around = [state(model, 0, own, theirs) for own, theirs in zip(near, behind, strict=True)]
        last = state(model, 1, first, around)
        scores = array(model.top.weight) @ np.concatenate([last, array(x.numbers[sample])]) + array(model.top.bias)
        expected.append(scores)
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-10)


def test_the_order_of_neighbours_does_not_matter() -> None:
    model = stirred(GraphSAGE(GRAPH, classes=4))
    x = made(GRAPH)
    near, far = x.sequence("hop1"), x.sequence("hop2")
    turned = Inputs(
        x.numbers,
        x._blocks,
        {
            "hop1": SequenceRows(near.rows[:, [1, 0]].contiguous(), near.mask),
            "hop2": SequenceRows(far.rows[:, [5, 3, 4, 0, 2, 1]].contiguous(), far.mask),  # each behind its own node
        },
    )
    np.testing.assert_allclose(array(model(turned)), array(model(x)), rtol=1e-12)


def test_the_loss_is_the_cross_entropy_of_the_class() -> None:
    model = stirred(GraphSAGE(GRAPH, classes=4))
    scores = model(made(GRAPH))
    classes = [0, 3, 2, 1, 1, 0]
    losses = [math.log(np.exp(row).sum()) - row[number] for row, number in zip(array(scores), classes, strict=True)]
    loss = model.loss(scores, torch.tensor(classes, dtype=torch.float32)[:, None])
    assert loss.item() == pytest.approx(np.mean(losses), rel=1e-12)


def test_hops_go_in_the_order_that_is_given() -> None:
    turned = InputShape(0, {"node": 5}, {"hop2": 5, "hop1": 5})
    x = made(turned)
    named, unnamed = (stirred(GraphSAGE(turned, classes=3, hops=hops)) for hops in (("hop1", "hop2"), None))
    assert array(named(x)).shape == (6, 3)
    with pytest.raises(InputError, match="sequence 'hop1': 2 neighbours of 6 nodes"):
        unnamed(x)


def test_shapes_that_are_no_neighbourhoods_are_told() -> None:
    with pytest.raises(ConfigError, match="graphsage needs sequences of neighbours"):
        GraphSAGE(InputShape(0, {"node": 5}), classes=2)
    with pytest.raises(ConfigError, match=r"as long as the node's; dims are \{'node': 5, 'hop1': 4\}"):
        GraphSAGE(InputShape(0, {"node": 5}, {"hop1": 4}), classes=2)
    with pytest.raises(ConfigError, match="node is missing: it must name one id feature; there are: 'a', 'b'"):
        GraphSAGE(InputShape(0, {"a": 5, "b": 5}, {"hop1": 5}), classes=2)
    with pytest.raises(ConfigError, match="does not read the sequence 'hop2'"):
        GraphSAGE(GRAPH, classes=2, hops=("hop1",))
    with pytest.raises(ConfigError, match="hops='hop3': there is no such sequence"):
        GraphSAGE(GRAPH, classes=2, hops=("hop1", "hop3"))


def test_other_features_of_the_node_go_to_the_last_layer() -> None:
    shape = InputShape(0, {"node": 5, "kind": 2}, {"hop1": 5})
    model = stirred(GraphSAGE(shape, classes=3, node="node", hidden=4))
    x = made(shape)
    before = array(model(x))
    with torch.no_grad():
        x._blocks[("kind",)] += 1
    change = array(model.top.weight)[:, 4:].sum(1)
    np.testing.assert_allclose(array(model(x)) - before, np.tile(change, (6, 1)), rtol=1e-9)
