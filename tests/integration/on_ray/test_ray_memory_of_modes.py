"""Long runs with batches of a usual size: no role takes more memory than its documented buffers, in any mode."""

import time
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.trainer import Progress, Trainer
from hotrow.transport.limits import Limits
from integration.on_ray.small_cluster import ALLOCATORS, NUMBERS, Net, check_settled, resident

pytestmark = [pytest.mark.usefixtures("one_ray"), pytest.mark.slow]

EVERY = [
    Sync(),
    Hybrid(),
    KStep(k=5, warmup=0),
    Async(),
    BulkSync(bulk=2),
    BoundedStaleness(bound=1),
    BackupWorkers(backups=1),
    GBA(),
]
SIZE, FEATURES, DIM, KEYS = 2_048, 8, 16, 100_000  # vectors of a batch are 1 MiB
SETTLED, COUNT = 200, 600  # local batches, of two trainers


def k_step_adam(parameters: Iterable[torch.nn.Parameter]) -> hr.KStepAdam:
    return hr.KStepAdam(parameters, lr=0.001)


@pytest.fixture(scope="module", params=[0, 2], ids=["direct", "through embedding workers"])
def trainer(request: pytest.FixtureRequest) -> Iterator[Trainer]:
    engine = hr.Ray(trainers=2, shards=2, embedding_workers=request.param)
    made = Trainer(
        Net(FEATURES * DIM, 64),
        hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.01)),
        optimizer=k_step_adam,
        engine=engine,
        global_batch=2 * SIZE,
        local_batch=SIZE,
        report_every_s=0,
        threads=1,
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def some_batches() -> list[Batch]:
    chance = np.random.default_rng(0)
    return [
        Batch(
            (FeatureBlock("default", "one", tuple("abcdefgh"), chance.integers(0, KEYS, SIZE * FEATURES)),),
            chance.normal(size=(SIZE, NUMBERS)).astype(np.float32),
            (chance.random((SIZE, 1)) < 0.3).astype(np.float32),
        )
        for _ in range(50)
    ]


def buffers_of(role: str) -> int:
    """Bytes that a role may fill with answers that it keeps; the driver is not asked."""
    return 0 if role == "driver" else Limits().kept_bytes


@pytest.mark.parametrize("mode", EVERY, ids=lambda mode: str(mode.name))
def test_no_role_takes_more_than_its_buffers(trainer: Trainer, some_batches: list[Batch], mode: Mode) -> None:
    trainer.switch(mode)
    before, given, began = None, 0, time.monotonic()

    def stream() -> Iterator[Batch]:
        nonlocal given
        for given in range(1, COUNT + 1):
            yield some_batches[given % len(some_batches)]

    for report in trainer.fit(stream()):
        if before is None and isinstance(report, Progress) and given >= SETTLED:
            before = resident(trainer)
    assert before is not None
    grown = {name: now - before[name] for name, now in resident(trainer).items()}
    told = ", ".join(f"{name} {each / 2**20:+.1f}" for name, each in grown.items())
    print(f"{mode.name}, {COUNT - SETTLED} batches, {COUNT / (time.monotonic() - began):.0f} a second, MiB: {told}")
    assert {name for name, each in grown.items() if each > buffers_of(name) + ALLOCATORS} == set(), told
    check_settled(trainer)
