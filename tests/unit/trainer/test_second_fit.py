"""One fit at a time: a second one is refused while the first is suspended, and trains its own data afterwards."""

import pytest

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease, Loader
from hotrow.errors import InputError
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.trainer import Progress
from unit.trainer.conftest import Made, make_trainer


def plain(rows: int, seed: int) -> list[Batch]:
    return [batch for _, batch in Loader(Made(rows, seed), 64)]


@pytest.mark.parametrize("source", [True, False], ids=["source", "batches"])
def test_a_second_fit_is_refused_until_the_first_has_ended(source: bool) -> None:
    trainer = make_trainer(report_every_s=0)
    first = trainer.fit(Made(640) if source else plain(640, 0))
    assert isinstance(next(first), Progress)
    with pytest.raises(InputError, match=r"fit\(\) while another is under way: .* call close\(\) on their iterator"):
        next(trainer.fit(Made(320, seed=1) if source else plain(320, 1)))
    trained = trainer.samples
    first.close()  # type: ignore[attr-defined]  # a generator
    list(trainer.fit(Made(320, seed=1) if source else plain(320, 1)))
    assert trainer.samples == trained + 320
    trainer.close()


def test_the_loop_refuses_the_leases_of_another_run() -> None:
    trainer = make_trainer(report_every_s=0)
    first = trainer.fit(Made(640))
    next(first)
    others: LeaseQueue = LeaseQueue(iter([(Lease(0, 0, 0, 64), plain(64, 1)[0])]))
    others.open_epoch()
    with pytest.raises(InputError, match="leases of another run while one is under way"):
        next(trainer._loop.steps(others, 0))
    list(first)
    assert trainer.samples == 640
    trainer.close()
