"""Models of several labels, beside their formulas as loops in float64."""

import numpy as np

from hotrow.models.layers import MLP
from hotrow.models.multitask import MMoE, SharedBottom
from unit.models.made_inputs import FIELDS, array, made, network, side, stirred


def test_shared_bottom_has_one_tower_per_label() -> None:
    model = stirred(SharedBottom(FIELDS, labels=3, bottom=(6, 4), tower=(3,)))
    x = made(FIELDS)
    expected = []
    for sample in range(len(x)):
        shared = network(model.bottom, side(x, sample))
        expected.append([network(tower, shared)[0] for tower in model.towers if isinstance(tower, MLP)])
    assert array(model(x)).shape == (6, 3)
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-12)


def test_mmoe_mixes_the_experts_for_each_label_by_its_own_gate() -> None:
    model = stirred(MMoE(FIELDS, labels=2, experts=3, expert=(6, 4), tower=(3,)))
    x = made(FIELDS)
    gates = array(model.gates.weight).reshape(2, 3, -1)
    expected = []
    for sample in range(len(x)):
        features = side(x, sample)
        opinions = [network(expert, features) for expert in model.experts if isinstance(expert, MLP)]
        row = []
        for label, tower in enumerate(model.towers):
            assert isinstance(tower, MLP)
            scores = np.exp([float(gate @ features) for gate in gates[label]])
            mixed = sum(score / scores.sum() * opinion for score, opinion in zip(scores, opinions, strict=True))
            row.append(network(tower, np.asarray(mixed))[0])
        expected.append(row)
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-11)


def test_mmoe_without_hidden_layers_mixes_the_input_itself() -> None:
    model = stirred(MMoE(FIELDS, labels=2, experts=3, expert=(), tower=()))
    x = made(FIELDS)
    expected = [
        [network(tower, side(x, sample))[0] for tower in model.towers if isinstance(tower, MLP)] for sample in range(6)
    ]
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-12)
