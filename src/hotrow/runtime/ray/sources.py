"""Sources on their way to loaders: Ray's key-value store holds them, pickled, while they are read.

Nothing that is pickled goes over the transport. Whoever Ray lets in runs code as the user of the run anyway.
"""

import pickle
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from ray import cloudpickle
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from hotrow.data.source import Source
from hotrow.errors import InputError

NAMESPACE = b"hotrow"
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
    _internal_kv_put(key.encode(), pickled, namespace=NAMESPACE)
    try:
        yield key
    finally:
        _internal_kv_del(key.encode(), namespace=NAMESPACE)


def fetch_source(key: str) -> Source:
    """A stored source, in the process of a loader."""
    pickled = _internal_kv_get(key.encode(), namespace=NAMESPACE)
    if pickled is None:
        raise InputError(f"source {key!r}: Ray does not have it any more: the run has ended")
    source: Source = pickle.loads(pickled)
    return source
