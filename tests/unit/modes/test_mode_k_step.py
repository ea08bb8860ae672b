"""KStep: rows at every step, dense parameters merged every k, through the warm-up at each, and before every rest."""

import pytest

from hotrow.errors import ConfigError
from hotrow.modes import KStep
from hotrow.modes.base import Apply, Drain, Drop, Effect, Grant, Joined, Lost, Ready, Resume
from hotrow.modes.k_step import Merged
from unit.modes.tiny_cluster import cluster_of, facts_of, grants_of, pushed


def started(k: int, warmup: int = 0, workers: int = 2, **facts: int) -> Merged:
    made = KStep(k=k, warmup=warmup).start(facts_of(workers=workers, parts=workers, **facts))
    assert isinstance(made, Merged)
    for worker in range(workers):
        made.on(Joined(worker))
    return made


def a_step(merged: Merged, workers: int = 2) -> list[Effect]:
    """A step from asking to closing."""
    grants = [grant for worker in range(workers) for grant in grants_of(merged.on(Ready(worker)))]
    for grant in grants[:-1]:
        assert merged.on(pushed(grant, group="embedding")) == []
    return merged.on(pushed(grants[-1], group="embedding"))


def groups(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.group, effect.step) for effect in effects if isinstance(effect, Apply)]


def merging_steps(merged: Merged, steps: int) -> list[int]:
    return [step for step in range(steps) if len(a_step(merged)) == 2]


@pytest.mark.parametrize(
    ("k", "warmup", "merging"),
    [
        (1, 0, [0, 1, 2, 3, 4, 5, 6, 7]),
        (2, 0, [1, 3, 5, 7]),
        (3, 0, [2, 5]),
        (3, 8, [0, 2, 5]),  # a global batch: one step
        (3, 9, [0, 1, 2, 5]),  # a sample more: two
        (3, 32, [0, 1, 2, 3, 5]),
    ],
)
def test_step_t_merges_where_t_mod_k_is_0_and_each_of_the_warm_up(k: int, warmup: int, merging: list[int]) -> None:
    assert merging_steps(started(k, warmup), 8) == merging


def test_where_nobody_says_it_the_warm_up_is_fifty_global_batches() -> None:
    merged = KStep(k=3).start(facts_of(workers=2, parts=2))
    assert isinstance(merged, Merged)
    assert merging_steps(merged, 54) == [*range(50), 50, 53]


def test_a_step_moves_rows_and_a_merge_stands_beside_it() -> None:
    merged = started(2)
    first, second = a_step(merged), a_step(merged)
    assert groups(first) == [("embedding", 0)]
    assert groups(second) == [("embedding", 1), ("dense", 1)]
    assert isinstance(second[0], Apply)
    assert isinstance(second[1], Apply)
    assert second[0].parts == second[1].parts
    assert [part.grant for part in second[0].parts] == [3, 4]


@pytest.mark.parametrize(("step", "merging"), [(1, [2, 2, 1, 2]), (2, [2, 1, 2, 1]), (10, [1, 1, 1, 1]), (14, [2, 1])])
def test_steps_and_warm_up_are_those_of_the_run_wherever_the_mode_begins(step: int, merging: list[int]) -> None:
    merged = started(5, warmup=24, step=step)  # three steps from the start of the run
    assert [len(a_step(merged)) for _ in merging] == merging


def test_a_drain_between_steps_merges_what_has_moved() -> None:
    merged = started(4)
    assert [len(a_step(merged)) for _ in range(2)] == [1, 1]
    assert merged.on(Drain()) == [Apply("dense", 2, ())]
    assert merged.on(Drain()) == []
    merged.on(Resume())
    assert groups(a_step(merged)) == [("embedding", 2)]


def test_a_drain_with_nothing_moved_merges_nothing() -> None:
    merged = started(1)
    assert len(a_step(merged)) == 2
    assert merged.on(Drain()) == []


def test_a_drain_in_mid_step_ends_with_a_short_step_that_merges() -> None:
    merged = started(4)
    a_step(merged)
    a_step(merged)
    grants = [grant for worker in range(2) for grant in grants_of(merged.on(Ready(worker)))]
    merged.on(pushed(grants[0], group="embedding"))
    assert merged.on(Drain()) == []
    dropped, moved, merge = merged.on(Lost(1))
    assert dropped == Drop(6, "lost")
    assert isinstance(moved, Apply)
    assert isinstance(merge, Apply)
    assert (groups([moved, merge]), len(merge.parts)) == ([("embedding", 2), ("dense", 2)], 1)


def test_a_drain_whose_last_grant_is_lost_still_merges() -> None:
    merged = started(4)
    a_step(merged)
    a_step(merged)
    grants = [grant for worker in range(2) for grant in grants_of(merged.on(Ready(worker)))]
    assert merged.on(Drain()) == []
    assert merged.on(Lost(0)) == [Drop(grants[0].grant, "lost")]
    assert merged.on(Lost(1)) == [Drop(grants[1].grant, "lost"), Apply("dense", 2, ())]


def test_a_merge_at_a_drain_does_not_move_those_of_every_kth_step() -> None:
    merged = started(3)
    assert merging_steps(merged, 2) == []
    assert merged.on(Drain()) == [Apply("dense", 2, ())]
    merged.on(Resume())
    assert [len(a_step(merged)) for _ in range(4)] == [2, 1, 1, 2]


def test_embeddings_follow_sync() -> None:
    merged = started(3, workers=2)
    assert grants_of(merged.on(Ready(1))) == []
    assert merged.on(Ready(0)) == [Grant(0, 1, 0), Grant(1, 2, 0)]


def test_every_rest_finds_one_model() -> None:
    cluster = cluster_of(KStep(k=4, warmup=0), workers=3, batches=40)
    for worker in range(3):
        cluster.join(worker)
    for turn in range(60):
        cluster.ask(turn % 3)
        cluster.push((turn + 1) % 3)
        if turn % 17 == 16:
            cluster.drain()
            cluster.resume()
            assert cluster.merged_steps[-1] == len(cluster.steps)
    cluster.finish()
    assert cluster.merged_steps[-1] == len(cluster.steps)


def test_it_says_how_dense_parameters_move() -> None:
    assert KStep(k=7).remarks(facts_of(workers=2, parts=2)) == [
        "k_step moves dense parameters by 4 samples on each worker, merged every 7 steps"
    ]
    assert KStep(k=1).remarks(facts_of(workers=2, parts=2))[0].endswith("merged every step")
    assert KStep().dense == "local"


@pytest.mark.parametrize("wrong", [{"k": 0}, {"warmup": -1}])
def test_settings_have_bounds(wrong: dict[str, int]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        KStep(**wrong)
