"""The data of a trainer as leases and batches."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeGuard, cast

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease, Loader
from hotrow.data.source import Source
from hotrow.errors import ConfigError, InputError
from hotrow.runtime.backend import Backend

Batches = Source | Loader | Iterable[Batch]


PASS = {"epochs": 1, "shuffle": 0, "seed": 0, "position": None}  # defaults of reading data


class Leases(Protocol):
    """Batches by lease, each reported back when it is trained."""

    counts: dict[str, int]

    def __iter__(self) -> Iterator[tuple[Lease, Batch]]: ...

    def done(self, lease: Lease) -> None: ...


class PlainBatches:
    """Batches of the caller: one pass, no position to resume from."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches
        self.counts: dict[str, int] = {}
        self.most: int | None = None  # samples that a batch may hold

    def __iter__(self) -> Iterator[tuple[Lease, Batch]]:
        for number, batch in enumerate(self._batches):
            if not isinstance(batch, Batch):
                raise InputError(f"batch {number} is a {type(batch).__name__}: give hotrow.data.Batch, or a Source")
            if self.most is not None and len(batch) > self.most:
                message = f"batch {number} has {len(batch):,} samples, and one worker's share is {self.most:,}"
                raise InputError(f"{message}: cut it (Batch.slice), or give a larger local_batch")
            for name, count in batch.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            yield Lease(number=number, epoch=0, index=number, samples=len(batch)), batch

    def done(self, lease: Lease) -> None:
        """Nobody asks."""


def leases(stream: Batches, batch: int, **loading: Any) -> Leases:
    """A loader as it is, a source through a loader, anything else batch by batch."""
    if is_source(stream):
        return Loader(stream, batch, **loading)
    for name, value in loading.items():
        if value != PASS[name]:
            raise ConfigError(f"{name}={value!r}: is for a Source; batches and a Loader come as they are, leave it out")
    if isinstance(stream, Loader):
        return stream
    return PlainBatches(cast(Iterable[Batch], stream))


def is_source(stream: object) -> TypeGuard[Source]:
    """Whether it can be read from the start, again and again."""
    return hasattr(stream, "read") and hasattr(stream, "schema")


def evaluation_batches(stream: Batches, batch: int) -> Iterator[Batch]:
    """All batches once, in order."""
    for _, part in leases(stream, batch):
        yield part


@contextmanager
def remote_reading(stream: Leases, backend: Backend, *, whole_batches: bool) -> Iterator[None]:
    """Let other processes read, where they can. `whole_batches`: this one needs them, so it reads."""
    if not isinstance(stream, Loader):
        yield
        return
    stream.load_rows = backend.row_prefetch if stream.loads_ahead else None
    others_read = backend.worker_pool is not None
    with nullcontext() if whole_batches and others_read else backend.reading(stream) as stream.remote:
        try:
            yield
        finally:
            stream.remote = stream.load_rows = None
