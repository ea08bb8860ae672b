"""Sources on their way to loaders: an actor of the driver holds one, pickled, while it is read.

Ray ends the actor with its driver, so nothing of a source, which may hold credentials of a file system, outlives a run
that is killed. Nothing that is pickled goes over the transport: a peer that Ray admits can run code as the user of the
run anyway.
"""

import pickle
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError

from hotrow.data.source import Source
from hotrow.errors import InputError

BYTES_MOST = 2**24  # of a pickled source: one that holds its rows is better read where it is


@contextmanager
def stored_source(source: Source) -> Iterator[str]:
    """Store a source while it is read; yields its key. InputError where it cannot be pickled, or is too large."""
    try:
        pickled: bytes = cloudpickle.dumps(source)  # type: ignore[no-untyped-call]
    except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
        raise InputError(f"the source cannot be pickled: {error}") from None
    if len(pickled) > BYTES_MOST:
        raise InputError(f"the source has {len(pickled):,} bytes, more than {BYTES_MOST:,}: it holds rows itself")
    key = f"source-{secrets.token_hex(16)}"
    holder: Any = ray.remote(_holder()).options(name=key, num_cpus=0).remote(pickled)
    try:
        yield key
    finally:
        ray.kill(holder)


def fetch_source(key: str) -> Source:
    """A stored source, in the process of a loader."""
    try:
        holder: Any = ray.get_actor(key)
        pickled: bytes = ray.get(holder.pickled.remote())
    except (ValueError, RayError):
        raise InputError(f"source {key!r}: Ray does not have it any more: the run has ended") from None
    source: Source = pickle.loads(pickled)
    return source


def _holder() -> type:
    """A local class, which Ray sends by value: its process does not import this package."""

    class SourceHolder:
        def __init__(self, pickled: bytes) -> None:
            self._pickled = pickled

        def pickled(self) -> bytes:
            return self._pickled

    return SourceHolder
