"""Models that read a history, beside their formulas as loops in float64. Padding never counts."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import nn

from hotrow.errors import ConfigError
from hotrow.models.dien import DIEN
from hotrow.models.din import DIN
from hotrow.models.layers import AUGRU, Dice
from hotrow.models.youtubednn import YouTubeDNN
from hotrow.nn.inputs import Inputs, InputShape
from unit.models.made_inputs import HISTORY, Vector, array, backward, leaves, made, network, side, sigmoid, stirred

LENGTHS = (3, 0, 1, 4, 2, 4)


def history(x: Inputs, sample: int) -> list[Vector]:
    """The rows that are there, oldest first."""
    rows, mask = x.sequence("seen").rows[sample], x.sequence("seen").mask[sample]
    return [array(row) for row, there in zip(rows, mask, strict=True) if there]


def test_din_weighs_each_row_by_itself_and_the_target() -> None:
    model = stirred(DIN(HISTORY, target="item", attention=(4,), hidden=(4,), activation="relu"))
    x = made(HISTORY, lengths=LENGTHS)
    expected = []
    for sample in range(len(x)):
        target, interest = array(x["item"][sample]), np.zeros(5)
        for row in history(x, sample):
            weight = network(model.attention.net, np.concatenate([row, row * target, target]))[0]
            interest += weight * row  # no softmax over the history
        expected.append(network(model.deep, np.concatenate([side(x, sample), interest]))[0])
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-11)


def test_din_interest_grows_with_every_repetition() -> None:
    """A softmax would give the same interest for one row and for four times the same row."""
    model = stirred(DIN(HISTORY, target="item"))
    x = made(HISTORY, 1, lengths=[1])
    once = x.sequence("seen")
    four = once.rows.detach().repeat(1, 4, 1)
    pooled = model.attention(x["item"], once)
    repeated = model.attention(x["item"], type(once)(four, torch.ones(1, 4, dtype=torch.bool)))
    np.testing.assert_allclose(array(repeated), 4 * array(pooled), rtol=1e-12)


def gru(cell: nn.GRU, rows: Sequence[Vector]) -> list[Vector]:
    """States of torch's GRU, in its own order of gates: reset, update, new."""
    input_weights, state_weights = array(cell.weight_ih_l0), array(cell.weight_hh_l0)
    input_bias, state_bias = array(cell.bias_ih_l0), array(cell.bias_hh_l0)
    state, states = np.zeros(cell.hidden_size), []
    for row in rows:
        reset_in, keep_in, new_in = np.split(input_weights @ row + input_bias, 3)
        reset_state, keep_state, new_state = np.split(state_weights @ state + state_bias, 3)
        keep = sigmoid(keep_in + keep_state)
        new = np.tanh(new_in + sigmoid(reset_in + reset_state) * new_state)
        state = (1 - keep) * new + keep * state
        states.append(state)
    return states


def augru(cell: AUGRU, rows: Sequence[Vector], attention: Vector) -> Vector:
    of_update, of_reset, of_new = np.split(array(cell.of_input.weight), 3)
    bias_update, bias_reset, bias_new = np.split(array(cell.of_input.bias), 3)
    from_update, from_reset, from_new = np.split(array(cell.of_state.weight), 3)
    state = np.zeros(cell.units)
    for row, share in zip(rows, attention, strict=True):
        update = share * sigmoid(of_update @ row + from_update @ state + bias_update)
        reset = sigmoid(of_reset @ row + from_reset @ state + bias_reset)
        new = np.tanh(of_new @ row + reset * (from_new @ state) + bias_new)
        state = (1 - update) * state + update * new
    return state


def test_dien_follows_the_interest_that_led_to_the_target() -> None:
    model = stirred(DIEN(HISTORY, target="item", hidden=(4,), activation="relu"))
    x = made(HISTORY, lengths=LENGTHS)
    expected = []
    for sample in range(len(x)):
        states = gru(model.interests, history(x, sample))
        target = array(x["item"][sample])
        scores = np.array([float(state @ array(model.relevance.weight).T @ target) for state in states])
        attention = np.exp(scores) / np.exp(scores).sum()
        last = augru(model.evolution, states, attention)
        expected.append(network(model.deep, np.concatenate([side(x, sample), last]))[0])
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-10)


def test_dien_next_row_loss_tells_the_row_that_follows_from_others() -> None:
    model = stirred(DIEN(HISTORY, target="item"))
    x = made(HISTORY, lengths=LENGTHS)
    sequence = x.sequence("seen")
    states = model.interests(sequence.rows)[0]
    pool = [row for sample in range(len(x)) for row in history(x, sample)]
    torch.manual_seed(5)
    drawn = torch.randperm(len(pool)).tolist()
    torch.manual_seed(5)
    loss = model.next_row_loss(states, sequence)
    losses, place = [], 0
    for sample in range(len(x)):
        rows = history(x, sample)
        for now, following in zip(gru(model.interests, rows)[:-1], rows[1:], strict=True):
            right, wrong = float(now @ following), float(now @ pool[drawn[place]])
            losses.append(-math.log(sigmoid(right)) - math.log(1 - sigmoid(wrong)))
            place += 1
    np.testing.assert_allclose(loss.item(), np.mean(losses), rtol=1e-10)


def test_dien_auxiliary_adds_its_gradient_and_leaves_the_output() -> None:
    gradients = {}
    for weight in (0.0, 0.5, 2.0):
        torch.manual_seed(0)
        model = DIEN(HISTORY, target="item", activation="relu", auxiliary=weight).double()
        x = made(HISTORY, lengths=LENGTHS)
        torch.manual_seed(1)
        output = model(x)
        backward(output.mean())
        rows = x.sequence("seen").rows
        assert rows.grad is not None
        gradients[weight] = array(output), array(rows.grad)
        torch.manual_seed(1)
        alone = torch.autograd.grad(model.next_row_loss(model.interests(rows)[0], x.sequence("seen")), rows)[0]
    np.testing.assert_array_equal(gradients[0.0][0], gradients[2.0][0])
    np.testing.assert_allclose(gradients[0.5][1] - gradients[0.0][1], 0.5 * array(alone), atol=1e-14)
    np.testing.assert_allclose(gradients[2.0][1] - gradients[0.0][1], 2.0 * array(alone), atol=1e-14)


def test_dien_without_auxiliary_draws_nothing() -> None:
    model = DIEN(HISTORY, target="item", auxiliary=0.0).double()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    model(made(HISTORY, lengths=LENGTHS))
    assert torch.equal(torch.get_rng_state(), before)


def test_dien_takes_histories_too_short_for_a_next_row() -> None:
    model = DIEN(HISTORY, target="item").double()
    output = model(made(HISTORY, 3, lengths=[1, 0, 1], longest=2))  # padding alone behind the first
    backward(output)
    assert output.isfinite().all()


SEQUENCE_MODELS: dict[str, Callable[[], nn.Module]] = {
    "din": lambda: DIN(HISTORY, target="item"),
    "dien": lambda: DIEN(HISTORY, target="item"),
    "youtubednn": lambda: YouTubeDNN(HISTORY, target="item", hidden=(8,)),
}


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
@pytest.mark.parametrize("training", [False, True])
def test_padding_changes_neither_results_nor_gradients(name: str, training: bool) -> None:
    """More of it, and other numbers in it."""
    results = []
    for longest, padding in ((4, 0.0), (7, 0.0), (9, 1e3)):
        model = stirred(SEQUENCE_MODELS[name]())
        model.train(training)
        x = made(HISTORY, lengths=LENGTHS, longest=longest, padding=padding)
        torch.manual_seed(0)
        output = model(x)
        backward(output.square().mean())
        gradient = x.sequence("seen").rows.grad
        assert gradient is not None
        assert not gradient[~x.sequence("seen").mask].any()
        found = [
            array(output),
            array(gradient[:, :4]),
            *(array(p.grad) for p in model.parameters() if p.grad is not None),
        ]
        results.append(found)
    for other in results[1:]:
        for expected, found_there in zip(results[0], other, strict=True):
            np.testing.assert_allclose(found_there, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
@pytest.mark.parametrize("longest", [0, 3])
@pytest.mark.parametrize("training", [False, True])
def test_a_batch_in_which_nobody_saw_anything_is_welcome(name: str, longest: int, training: bool) -> None:
    model = stirred(SEQUENCE_MODELS[name]()).train(training)
    x = made(HISTORY, 3, lengths=[0, 0, 0], longest=longest)
    output = model(x)
    backward(output)
    assert output.isfinite().all()
    assert all(rows.grad is None or rows.grad.isfinite().all() for rows in leaves(x).values())


@pytest.mark.parametrize("name", ["din", "youtubednn"])
def test_the_order_of_a_history_does_not_matter(name: str) -> None:
    model = stirred(SEQUENCE_MODELS[name]())
    x = made(HISTORY, 3, lengths=[4, 4, 4])
    once = x.sequence("seen")
    turned = Inputs(x.numbers, x._blocks, {"seen": type(once)(once.rows[:, [2, 0, 3, 1]], once.mask)})
    np.testing.assert_allclose(array(model(turned)), array(model(x)), rtol=1e-10)


def test_the_order_of_a_history_matters_to_dien() -> None:
    model = stirred(DIEN(HISTORY, target="item"))
    x = made(HISTORY, 3, lengths=[4, 4, 4])
    once = x.sequence("seen")
    turned = Inputs(x.numbers, x._blocks, {"seen": type(once)(once.rows[:, [2, 0, 3, 1]], once.mask)})
    assert np.abs(array(model(turned)) - array(model(x))).min() > 1e-4


def user_vector(model: YouTubeDNN, x: Inputs, sample: int, numbers: Sequence[int]) -> Vector:
    rows = history(x, sample)
    mean = sum(rows, np.zeros(5)) / max(len(rows), 1)
    return network(
        model.user, np.concatenate([mean, array(x["user"][sample]), array(x.numbers[sample, list(numbers)])])
    )


def test_youtubednn_scores_the_own_item_in_eval_mode() -> None:
    model = stirred(YouTubeDNN(HISTORY, target="item", hidden=(4,)))
    x = made(HISTORY, lengths=LENGTHS)
    expected = [float(user_vector(model, x, sample, [0, 1, 2]) @ array(x["item"][sample])) for sample in range(len(x))]
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-11)


def test_youtubednn_binary_has_a_bias_and_the_usual_loss() -> None:
    model = stirred(YouTubeDNN(HISTORY, target="item", hidden=(4,), objective="binary"))
    x = made(HISTORY, lengths=LENGTHS)
    assert model.bias is not None
    odds = [
        float(user_vector(model, x, sample, [0, 1, 2]) @ array(x["item"][sample])) + model.bias.item()
        for sample in range(len(x))
    ]
    np.testing.assert_allclose(array(model(x)), odds, rtol=1e-11)
    np.testing.assert_allclose(array(model.train()(x)), odds, rtol=1e-11)
    labels = np.array([1.0, 0, 1, 1, 0, 0])
    losses = [-math.log(sigmoid(odd if label else -odd)) for odd, label in zip(odds, labels, strict=True)]
    loss = model.loss(model(x), torch.from_numpy(labels)[:, None])
    np.testing.assert_allclose(loss.item(), np.mean(losses), rtol=1e-10)


@pytest.mark.parametrize("log_frequency", [None, 1])
def test_youtubednn_softmax_is_over_the_items_of_the_batch_with_log_q_taken_off(log_frequency: int | None) -> None:
    model = stirred(YouTubeDNN(HISTORY, target="item", hidden=(4,), log_frequency=log_frequency)).train()
    x = made(HISTORY, lengths=LENGTHS)
    with torch.no_grad():  # sample 4 wants the same item as sample 0, and sample 5 too
        x._blocks["user", "item"][4:, 1] = x["item"][0]
    times = [3, 1, 1, 1, 3, 3]
    seen = [0, 1, 2] if log_frequency is None else [0, 2]
    labels = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    losses = []
    for sample in range(len(x)):
        user = user_vector(model, x, sample, seen)
        scores = []
        for other in range(len(x)):
            log_q = math.log(times[other] / len(x)) if log_frequency is None else x.numbers[other, 1].item()
            scores.append(float(user @ array(x["item"][other])) - log_q)
        losses.append(math.log(sum(math.exp(score) for score in scores)) - scores[sample])
    loss = model.loss(model(x), torch.tensor(labels).double()[:, None])
    assert loss.item() == pytest.approx(sum(np.array(losses) * labels) / sum(labels), rel=1e-10)


def test_youtubednn_softmax_counts_each_item_of_the_batch_once() -> None:
    """The gradient is that of a softmax over the distinct items."""
    model = stirred(YouTubeDNN(HISTORY, target="item", hidden=(4,))).train()
    x = made(HISTORY, 3, lengths=[1, 2, 3])
    with torch.no_grad():
        x._blocks["user", "item"][2, 1] = x["item"][0]
    backward(model.loss(model(x), torch.ones(3, 1).double()))
    found = [array(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    distinct = model.users(x) @ x["item"][:2].T
    backward(nn.functional.cross_entropy(distinct, torch.tensor([0, 1, 0])))
    for ours, expected in zip(found, [p.grad for p in model.parameters() if p.grad is not None], strict=True):
        np.testing.assert_allclose(ours, array(expected), rtol=1e-10, atol=1e-13)


def test_youtubednn_without_a_positive_learns_nothing() -> None:
    model = stirred(YouTubeDNN(HISTORY, target="item", hidden=(4,))).train()
    x = made(HISTORY, lengths=LENGTHS)
    loss = model.loss(model(x), torch.zeros(6, 1).double())
    backward(loss)
    assert loss.item() == 0
    assert all(not rows.grad.any() for rows in leaves(x).values() if rows.grad is not None)


def test_dice_bends_where_the_data_lies() -> None:
    dice = stirred(Dice(3))
    x = torch.randn(5, 3, dtype=torch.float64)
    mean, variance = array(dice.norm.running_mean), array(dice.norm.running_var)
    for row, found in zip(array(x), array(dice(x)), strict=True):
        for unit in range(3):
            p = sigmoid((row[unit] - mean[unit]) / np.sqrt(variance[unit] + 1e-8))
            expected = p * row[unit] + (1 - p) * dice.alpha[unit].item() * row[unit]
            np.testing.assert_allclose(found[unit], expected, rtol=1e-12)


TWO = InputShape(0, {"item": 5, "other": 5}, {"seen": 5, "bought": 5})


@pytest.mark.parametrize("kind", [DIN, DIEN, YouTubeDNN])
def test_target_and_history_are_told_when_they_are_not_clear(kind: type[DIN | DIEN | YouTubeDNN]) -> None:
    with pytest.raises(ConfigError, match="target is missing: it must name one id feature; there are: 'item', 'other'"):
        kind(TWO)
    with pytest.raises(ConfigError, match=r"history is missing: .* one sequence; there are: 'seen', 'bought'"):
        kind(TWO, target="item")
    with pytest.raises(ConfigError, match="history='red': there is no such sequence; there are: 'seen', 'bought'"):
        kind(TWO, target="item", history="red")
    with pytest.raises(ConfigError, match="does not read the sequence 'bought'"):
        kind(TWO, target="item", history="seen")
    with pytest.raises(ConfigError, match=r"target is missing.* there are: none"):
        kind(InputShape(2, {}, {"seen": 5}))
    with pytest.raises(ConfigError, match=r"'item' \(4 floats\) with those of 'seen' \(5\)"):
        kind(InputShape(0, {"item": 4}, {"seen": 5}))
    kind(InputShape(0, {"item": 5}, {"seen": 5}))  # the only ones there are


def test_log_frequency_must_be_a_number_that_is_there() -> None:
    with pytest.raises(ConfigError, match="log_frequency=3: there are 3 numbers"):
        YouTubeDNN(HISTORY, target="item", log_frequency=3)
    with pytest.raises(ConfigError, match="log_frequency=0: only softmax needs it"):
        YouTubeDNN(HISTORY, target="item", objective="binary", log_frequency=0)
    YouTubeDNN(HISTORY, target="item", log_frequency=2)
