"""Lost trainers are replaced without a wait, and not without end."""

import threading

import pytest

from hotrow.errors import ConfigError
from hotrow.runtime.losses import QUIET_STEPS
from hotrow.trainer.replacing import TrainerReplacement


class Cluster:
    """Starts trainers as far as there is room for them."""

    def __init__(self, most: int, room: int = 100) -> None:
        self.step, self.started, self.room = 0, 0, room
        self.told: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self.replacement = TrainerReplacement(self.start, self.told.append, lambda: self.step, most)

    def start(self) -> None:
        self.go.wait(10)
        if self.started == self.room:
            raise ConfigError("Ray found no resources")
        self.started += 1

    def lose(self, name: str) -> None:
        self.replacement.replace(name)
        while self.go.is_set() and self.replacement.pending:
            pass


@pytest.mark.parametrize(("most", "started"), [(0, 0), (1, 1), (2, 2), (5, 3)])
def test_a_few_in_a_row_are_replaced_and_then_none(most: int, started: int) -> None:
    cluster = Cluster(most)
    for number in range(3):
        cluster.lose(f"trainer {number}")
    assert cluster.started == started
    refused = f"trainer {most} is not replaced: {most + 1} trainers were lost with fewer than 100 steps between them"
    assert cluster.told[:1] == ([f"{refused} (engine.replace_lost={most})"] if 0 < most < 3 else [])


@pytest.mark.parametrize(("steps", "started"), [(QUIET_STEPS - 1, 1), (QUIET_STEPS, 3)])
def test_after_enough_steps_the_next_loss_is_the_first_in_a_row(steps: int, started: int) -> None:
    cluster = Cluster(most=1)
    for number in range(3):
        cluster.lose(f"trainer {number}")
        cluster.step += steps
    assert cluster.started == started


def test_training_does_not_wait_and_a_refusal_is_told() -> None:
    cluster = Cluster(most=2, room=0)
    cluster.go.clear()
    cluster.lose("trainer 0")
    assert cluster.replacement.pending, "the caller goes on meanwhile"
    cluster.go.set()
    cluster.lose("trainer 1")
    assert sorted(cluster.told) == [f"trainer {number} is not replaced: Ray found no resources" for number in range(2)]
