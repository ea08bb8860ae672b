"""Every model of the zoo learns what it is meant for, with real tables; a model without the ability stays behind.

Tasks are made up, with ids enough that none can be learnt by heart: what is tested was never seen as a whole.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.data.graph import Graph, Neighbourhoods
from hotrow.models import MODELS
from integration.learning import Floats, Ids, Learner, accuracy, learned

NOTHING = np.zeros(0, np.int64)
SEQUENCE_START = 1 << 40  # ids of a history that shall not be the fields' rows


def fields(**ids: Ids) -> FeatureBlock:
    """Each field has ids of its own."""
    columns = [(place << 32) + column for place, column in enumerate(ids.values())]
    return FeatureBlock("rows", "one", tuple(ids), np.stack(columns, 1).reshape(-1))


def sequence(name: str, rows: Ids, start: int = SEQUENCE_START) -> FeatureBlock:
    """Every sample has as many."""
    return FeatureBlock("rows", "sequence", (name,), start + rows.reshape(-1), np.arange(len(rows) + 1) * rows.shape[1])


def samples(parts: tuple[FeatureBlock, ...], labels: NDArray[Any], numbers: NDArray[Any] | None = None) -> Batch:
    wanted = labels.astype(np.float32).reshape(len(labels), -1)
    given = np.zeros((len(labels), 0)) if numbers is None else numbers
    return Batch(parts, given.astype(np.float32), wanted)


# Pairs: whether two ids agree. Alone, an id says nothing; every fifth pair of ids is kept for the test.

KINDS = 40
AGREE: dict[str, dict[str, Any]] = {  # and a network or product of each sort that finds it
    "fm": {},
    "wide_deep": {"hidden": (32, 16)},
    "deepfm": {"hidden": (32, 16)},
    "dnn": {"hidden": (32, 16)},
    "ffnn": {"hidden": (64, 32, 16)},
    "dcn": {"hidden": (16,), "cross_layers": 2},
    "dcnv2": {"hidden": (16,), "cross_layers": 2},
    "xdeepfm": {"hidden": (16,), "cin": (8, 8)},
    "dlrm": {"bottom": (16,), "top": (16,)},
}


def pairs(count: int, seed: int, *, held_out: bool) -> Batch:
    rng = np.random.default_rng(seed)
    user, item, hour = rng.integers(0, KINDS, (3, count))
    keep = ((user * 7 + item * 3) % 5 == 0) == held_out
    user, item, hour = user[keep], item[keep], hour[keep]
    # Half of the ids are of either sort. The second label asks about another pair.
    labels = np.stack([user % 2 == item % 2, user % 2 == hour % 2], 1)
    return samples((fields(user=user, item=item, hour=hour),), labels, rng.standard_normal((len(user), 2)))


def first_label(batch: Batch) -> Batch:
    assert batch.labels is not None
    return Batch(batch.parts, batch.numbers, batch.labels[:, :1])


@pytest.fixture(scope="module")
def pairs_seen() -> Batch:
    return pairs(8000, 0, held_out=False)


@pytest.fixture(scope="module")
def pairs_new() -> Batch:
    return pairs(8000, 1, held_out=True)


@pytest.mark.parametrize("name", AGREE)
def test_pairs_that_agree_are_found(name: str, pairs_seen: Batch, pairs_new: Batch) -> None:
    assert learned(name, first_label(pairs_seen), AGREE[name]).auc(first_label(pairs_new)) > 0.9


def test_lr_cannot_find_pairs(pairs_seen: Batch, pairs_new: Batch) -> None:
    assert abs(learned("lr", first_label(pairs_seen), {}, dim=1).auc(first_label(pairs_new)) - 0.5) < 0.1


def test_lr_adds_what_ids_and_numbers_say() -> None:
    def task(seed: int) -> Batch:
        rng = np.random.default_rng(seed)
        user, item = rng.integers(0, KINDS, (2, 4000))
        numbers = rng.standard_normal((4000, 2))
        weights = np.linspace(-2, 2, KINDS)
        return samples((fields(user=user, item=item),), weights[user] - weights[item] + numbers[:, 0] > 0, numbers)

    assert learned("lr", task(0), {}, dim=1).auc(task(1)) > 0.97


@pytest.mark.parametrize("name", ["shared_bottom", "mmoe"])
def test_two_labels_are_learnt_together(name: str, pairs_seen: Batch, pairs_new: Batch) -> None:
    learner = learned(name, pairs_seen, {"labels": 2}, lr=0.003)
    assert learner.auc(pairs_new, 0) > 0.9
    assert learner.auc(pairs_new, 1) > 0.9


# Relevance: of all that a user saw, only the item of the candidate's sort tells whether he wants it.

SORTS, SEEN = 12, 8


def relevance(count: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    sorts = np.argsort(rng.random((count, SORTS)), 1)[:, :SEEN]
    liked = rng.integers(0, 2, (count, SEEN))
    place = rng.integers(0, SEEN, count)
    asked, wanted = sorts[np.arange(count), place], liked[np.arange(count), place]
    items = (sorts * 2 + liked) * 3 + rng.integers(0, 3, (count, SEEN))
    return samples((fields(item=asked), sequence("seen", items)), wanted)


def test_din_finds_what_has_to_do_with_the_candidate_and_a_mean_does_not() -> None:
    seen, new = relevance(8000, 0), relevance(2000, 1)
    settings = {"size": 256, "epochs": 5, "dim": 4}
    assert learned("din", seen, {}, **settings).auc(new) > 0.97
    assert learned("youtubednn", seen, {"objective": "binary", "hidden": (64, 32)}, **settings).auc(new) < 0.92


# Order: of either mood a user saw as much; the last one tells whether he wants a candidate of that mood.


def order(count: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    moods = np.argsort(rng.random((count, 6)), 1) % 2
    asked = rng.integers(0, 20, count)
    items = moods * 10 + rng.integers(0, 10, moods.shape)
    return samples((fields(item=asked), sequence("seen", items)), asked % 2 == moods[:, -1])


def test_dien_knows_what_came_last_and_din_does_not() -> None:
    seen, new = order(4000, 0), order(2000, 1)
    assert learned("dien", seen, {"hidden": (16,)}, epochs=4, lr=0.03).auc(new) > 0.95
    assert abs(learned("din", seen, {"hidden": (16,)}, epochs=4, lr=0.03).auc(new) - 0.5) < 0.06


# Retrieval: users stay in one corner of the catalogue, and popular items come more often in each.

CORNERS, ITEMS = 20, 10
POPULARITY = np.tile(1 / np.arange(1, ITEMS + 1), CORNERS)


def visits(count: int, seed: int) -> tuple[Ids, Ids, Ids]:
    """Corner, what was seen, and what came next."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, CORNERS, count)
    share = POPULARITY[:ITEMS] / POPULARITY[:ITEMS].sum()
    items = corners[:, None] * ITEMS + rng.choice(ITEMS, (count, 6), p=share)
    return corners, items[:, :-1], items[:, -1]


def visit_samples(seen: Ids, item: Ids, labels: NDArray[Any]) -> Batch:
    """Items of a history and candidates share their rows."""
    return samples((fields(item=item), sequence("seen", seen, start=0)), labels, np.log(POPULARITY[item])[:, None])


def every_score(learner: Learner, seen: Ids) -> Floats:
    """[users, items]"""
    users, items = len(seen), len(POPULARITY)
    batch = visit_samples(np.repeat(seen, items, 0), np.tile(np.arange(items), users), np.zeros(users * items))
    return learner.scores(batch).reshape(users, items)


def likeness_to_popularity(scores: Floats, corners: Ids) -> float:
    """How well the scores of a user's own corner follow the log of popularity."""
    own = np.take_along_axis(scores, corners[:, None] * ITEMS + np.arange(ITEMS), 1)
    return float(np.mean([np.corrcoef(row, np.log(POPULARITY[:ITEMS]))[0, 1] for row in own]))


def test_youtubednn_finds_items_and_the_correction_keeps_popular_ones_up() -> None:
    _, seen, item = visits(8000, 0)
    batch = visit_samples(seen, item, np.ones(len(item)))
    settings: dict[str, Any] = {"epochs": 4, "size": 256, "dim": 16, "rows_lr": 0.2}
    corners, seen_new, item_new = visits(200, 1)
    right = learned("youtubednn", batch, {"hidden": (32,), "log_frequency": 0}, **settings)
    scores = every_score(right, seen_new)
    assert hit_rate(scores, item_new) > 0.95
    assert hit_rate(np.tile(POPULARITY, (200, 1)), item_new) < 0.6  # popularity alone
    assert likeness_to_popularity(scores, corners) > 0.85
    flat = Batch(batch.parts, np.zeros_like(batch.numbers), batch.labels)  # a correction that says nothing
    wrong = learned("youtubednn", flat, {"hidden": (32,), "log_frequency": 0}, **settings)
    assert likeness_to_popularity(every_score(wrong, seen_new), corners) < 0.4


def test_youtubednn_learns_from_binary_labels_too() -> None:
    def task(count: int, seed: int) -> Batch:
        corners, seen, item = visits(count, seed)
        rng = np.random.default_rng(seed + 10)
        other = np.where(rng.random(count) < 0.5, item, rng.integers(0, len(POPULARITY), count))
        return visit_samples(seen, other, other // ITEMS == corners)

    settings = {"objective": "binary", "hidden": (32,)}
    assert learned("youtubednn", task(6000, 0), settings, dim=16, size=256, rows_lr=0.2).auc(task(2000, 1)) > 0.95


def hit_rate(scores: NDArray[Any], wanted: Ids, others: Ids | None = None, best: int = 10) -> float:
    """How often the wanted item is among the best, with 99 others drawn."""
    users = np.arange(len(scores))
    if others is None:
        others = np.random.default_rng(3).integers(0, scores.shape[1], (len(scores), 99))
    of_others, own = np.take_along_axis(scores, others, 1), scores[users, wanted][:, None]
    above = (of_others > own).sum(1) + 0.5 * ((of_others == own) & (others != wanted[:, None])).sum(1)
    return float((above < best).mean())


# Communities: most edges stay inside. One node in five has a label; others are known by their neighbours alone.


def communities(nodes: int, groups: int, edges: int, seed: int) -> tuple[Graph, Ids]:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, nodes)
    left, right = rng.integers(0, nodes, (2, edges * 8))
    keep = (group[left] == group[right]) | (rng.random(len(left)) < 0.05)
    return Graph.of_edges(left[keep][:edges], right[keep][:edges], nodes=np.arange(nodes)), group


@pytest.mark.parametrize("connected", [True, False])
def test_graphsage_knows_a_node_by_its_neighbours(connected: bool) -> None:
    graph, group = communities(1000, 4, 5000, 0)
    if not connected:
        graph = Graph.of_edges(NOTHING, NOTHING, nodes=graph.ids)
    around = Neighbourhoods(graph, fan_outs=(8, 4), table="rows")
    labelled, others = graph.ids[::5], graph.ids[1::5]
    like = next(around.batches(labelled, group[labelled], size=10))
    learner = Learner("graphsage", like, {"classes": 4, "hidden": 32}, dim=16, lr=0.01, rows_lr=0.1)
    for epoch in range(15):
        for batch in around.batches(labelled, group[labelled], size=50, epoch=epoch, shuffle=True):
            learner.train(batch)
    found = accuracy(learner, list(around.batches(others, group[others], size=200)))
    assert found > 0.9 if connected else found < 0.4


def test_every_model_has_a_task() -> None:
    assert MODELS.keys() == AGREE.keys() | {"lr", "din", "dien", "youtubednn", "shared_bottom", "mmoe", "graphsage"}
