"""Whatever happens to a cluster, in every mode: nobody hangs, everything is trained once, promises are kept."""

from collections.abc import Callable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import Apply, Drop, Grant
from profiles import examples
from unit.modes.tiny_cluster import TinyCluster, cluster_of, restored

CLUSTERS = st.tuples(
    st.sampled_from(
        [
            Sync(),
            Sync(look_ahead=1),
            Async(),
            BulkSync(bulk=1),
            BulkSync(bulk=3),
            BoundedStaleness(bound=0),
            BoundedStaleness(bound=2),
            BackupWorkers(backups=0),
            BackupWorkers(backups=1),
            GBA(tolerance=0),
            GBA(tolerance=2),
            Hybrid(max_in_flight=1),
            Hybrid(max_in_flight=3),
            Hybrid(max_in_flight=2, scale="local"),
            KStep(k=1),
            KStep(k=3, warmup=20),
            KStep(k=2, warmup=0, look_ahead=1),
        ]
    ),
    st.integers(2, 4),  # workers
    st.integers(1, 5),  # local batches in a global one
    st.integers(0, 25),  # batches
    st.integers(0, 3),  # samples that the last one lacks
)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask"] * 6
            + ["push"] * 8
            + ["lose", "join", "join", "drain", "resume", "again", "after_loss", "copy", "ahead"]
        ),
        st.integers(0, 3),
    ),
    max_size=120,
)


@given(CLUSTERS, ACTIONS)
@settings(max_examples=examples(600))
def test_whatever_happens_nobody_hangs_and_everything_is_trained_once(
    made: tuple[Mode, int, int, int, int], actions: list[tuple[str, int]]
) -> None:
    mode, workers, parts, batches, short = made
    if mode.name == "k_step":
        parts = max(parts, workers)  # it takes no more workers than that
    cluster = cluster_of(mode, workers=workers, parts=parts, batches=batches, short=short)
    for worker in range(workers):
        cluster.join(worker)
    for what, worker in actions:
        act(cluster, what, worker % workers)
    cluster.judge()
    cluster.finish()
    for law in laws(mode):
        law(cluster)


def act(cluster: TinyCluster, what: str, worker: int) -> None:
    match what:
        case "ask":
            cluster.ask(worker)
        case "push":
            cluster.push(worker)
        case "lose":
            cluster.lose(worker)
        case "join":
            cluster.join(worker)
        case "drain":
            cluster.drain()
        case "resume" if cluster.resting:
            cluster.resume()
        case "again":
            cluster.push_again(worker * 7)
        case "after_loss":
            cluster.push_after_loss()
        case "ahead":
            cluster.change_look_ahead()
        case "copy":
            cluster.discipline = restored(cluster.discipline)


def laws(mode: Mode) -> Iterator[Callable[[TinyCluster], None]]:
    """What a mode promises beyond what all do."""
    match mode.name:
        case "sync" | "backup_workers" | "k_step":
            yield nothing_is_stale
            yield every_step_computed_by_its_own_parameters
        case "hybrid":
            yield nothing_is_stale
            yield every_step_computed_by_its_own_parameters
        case "gba":
            yield nothing_older_than_the_bound_has_weight
        case "bounded_staleness":
            yield nobody_is_far_ahead
    if mode.name != "backup_workers":
        yield nothing_is_dropped_as_late


def nothing_is_stale(cluster: TinyCluster) -> None:
    assert all(part.pulled_step == step.step for step in cluster.steps for part in step.parts)


def every_step_computed_by_its_own_parameters(cluster: TinyCluster) -> None:
    assert all(part.token == step.step for step in cluster.steps for part in step.parts)


def nothing_older_than_the_bound_has_weight(cluster: TinyCluster) -> None:
    assert isinstance(cluster.mode, GBA)
    for step in cluster.steps:
        for part in step.parts:
            assert part.weight == (step.step - part.token <= cluster.mode.tolerance)
            assert part.token >= part.pulled_step


def nothing_is_dropped_as_late(cluster: TinyCluster) -> None:
    assert not [effect for effect in cluster.effects if isinstance(effect, Drop) and effect.reason == "late"]


def nobody_is_far_ahead(cluster: TinyCluster) -> None:
    """Followed from the events alone: who is there, and how many batches each has finished."""
    assert isinstance(cluster.mode, BoundedStaleness)
    replayed = cluster.mode.start(cluster.facts)
    done: dict[int, int] = {}
    for event in cluster.events:
        name = type(event).__name__
        worker = getattr(event, "worker", -1)
        if name in ("Joined", "Ready"):
            done.setdefault(worker, min(done.values(), default=0))
        elif name in ("Lost", "Ended"):
            done.pop(worker, None)
        effects = replayed.on(event)
        if name == "Pushed" and worker in done and any(isinstance(effect, Apply) for effect in effects):
            done[worker] += 1
        for effect in effects:
            if isinstance(effect, Grant):
                assert done[effect.worker] - min(done.values()) <= cluster.mode.bound
