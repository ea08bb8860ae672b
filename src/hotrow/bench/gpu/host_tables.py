"""Tables of the native store as tiers below: in memory, and with a part of the rows on disk.

They need the native core and pydantic, which a machine with torch and Triton alone does not have.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from hotrow.store.hbm import HbmSpec

DISK_SHARE = 0.1  # of the rows
RAM_ROW_BYTES = 40  # beside its floats
DISK_BYTES = 6  # times those of the rows there: rows read back into memory stay on disk for a while

OpenTier = Callable[[], AbstractContextManager[Any]]


def host_tables(spec: HbmSpec) -> list[tuple[str, OpenTier]]:
    """Their names, and what opens them; none without the native core."""
    try:
        import hotrow.store.ram  # noqa: F401
    except ImportError as error:
        print(f"tiers of the native store are left out: {error}", file=sys.stderr)
        return []
    return [("host", partial(_host, spec)), ("disk", partial(_disk, spec))]


def _table(spec: HbmSpec, **settings: Any) -> Any:
    from hotrow.config import Table
    from hotrow.optim.sparse import Adagrad

    rule = spec.rule
    optimizer = Adagrad(lr=rule.lr, initial=rule.initial, eps=rule.eps)
    return Table(dim=spec.dim, optimizer=optimizer, **settings)


@contextmanager
def _host(spec: HbmSpec) -> Iterator[Any]:
    from hotrow.store.host_tier import HostTier
    from hotrow.store.ram import RamTier

    yield HostTier(RamTier(_table(spec), threads=_threads()))


@contextmanager
def _disk(spec: HbmSpec) -> Iterator[Any]:
    from hotrow.store.host_tier import HostTier
    from hotrow.store.tiered import TieredTier

    row_bytes = 4 * (spec.dim + spec.state_dim) + RAM_ROW_BYTES
    disk = int(max(2**24, spec.capacity * DISK_SHARE * DISK_BYTES * row_bytes))
    with tempfile.TemporaryDirectory() as folder:
        settings = {"capacity": int(spec.capacity * (1 - DISK_SHARE)), "disk": f"{disk}B", "path": folder}
        tier = TieredTier(_table(spec, **settings), threads=_threads())
        try:
            yield HostTier(tier)
        finally:
            tier.close()


def _threads() -> int:
    return os.cpu_count() or 1
