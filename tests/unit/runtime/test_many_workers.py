"""What a coordinator does for a batch does not grow with its workers; what arrived together is ordered together."""

import pytest

from hotrow.modes import GBA, Async, BoundedStaleness, Mode, Sync
from hotrow.modes.base import Grant
from hotrow.runtime.active_mode import TOGETHER, ActiveMode
from hotrow.runtime.membership import ScaleRequest
from hotrow.types import RoleId
from unit.runtime.scripted_backend import Run


@pytest.mark.parametrize("mode", [Async(), GBA(), BoundedStaleness(bound=2), Sync()], ids=lambda mode: str(mode.name))
def test_requests_of_a_batch_do_not_grow_with_the_workers(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []
    request = ActiveMode.request_batch

    def counting(active: ActiveMode, worker: int) -> bool:
        requests.append(worker)
        return request(active, worker)

    monkeypatch.setattr(ActiveMode, "request_batch", counting)
    run = Run(mode, workers=40, parts=40)
    assert sum(step.samples for step in run.steps(400)) == 800
    assert sorted(run.done) == list(range(400))
    assert len(requests) <= 4 * (400 + 40)  # twice for a batch, the second in vain, and some at the end of the data


def test_effects_of_batches_that_arrived_together_are_settled_at_once() -> None:
    run = Run(Async(), workers=8, parts=8)
    run.site.together = True
    steps = list(run.steps(8))
    assert [step.step for step in steps] == list(range(8))
    assert run.site.parameters.settled == 1
    assert sorted(run.done) == list(range(8))


def test_no_more_than_a_bound_are_settled_at_once() -> None:
    run = Run(Async(), workers=TOGETHER + 1, parts=TOGETHER + 1)
    run.site.together = True
    assert len(list(run.steps(TOGETHER + 1))) == TOGETHER + 1
    assert run.site.parameters.settled == 2


def test_each_batch_is_settled_alone_where_they_arrive_one_by_one() -> None:
    run = Run(Async(), workers=8, parts=8)
    assert len(list(run.steps(8))) == 8
    assert run.site.parameters.settled == 8


def test_what_was_decided_before_an_error_is_settled() -> None:
    """Its step counts as applied: the order must not be lost."""

    def fails_at_the_third(out: list[Grant]) -> Grant:
        if len(out) == 1:
            raise ArithmeticError
        return out[0]

    run = Run(Async(), workers=3, parts=3, last=fails_at_the_third)
    run.site.together = True
    with pytest.raises(ArithmeticError):
        next(run.steps(3))
    assert run.state.step == 2
    assert (run.site.parameters.settled, run.site.parameters.applied) == (1, 0)


def test_a_worker_that_found_no_data_gets_what_another_one_returns() -> None:
    run = Run(BoundedStaleness(bound=0), workers=3, parts=3)
    leaving: ScaleRequest | None = None
    for number, _ in enumerate(run.steps(10)):
        if number == 4:
            leaving = run.request("trainer 1", joins=False)
    assert leaving is not None
    assert leaving.done.done()
    assert sorted(run.done) == list(range(10))
    assert run.site.names == [RoleId("trainer", 0), RoleId("trainer", 2)]
