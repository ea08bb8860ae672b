"""The rows of a trainer's batches: on shards, behind a cache of its own, or pooled by an embedding worker."""

import logging
from typing import Any

import torch

from hotrow.cache.client import CachedTables
from hotrow.cache.modes import cached_tables
from hotrow.cache.placement import caches_on_device
from hotrow.client.pooled import PooledTables, RemoteTables
from hotrow.client.row_hints import RowHints, hinted_tables
from hotrow.client.sharded import LookupStep, ShardedTables
from hotrow.data.batch import Batch
from hotrow.modes import Mode
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import BatchRequest, CacheFlushed, FlushCache
from hotrow.worker.cache_flush import flush_caches
from hotrow.worker.setup import TrainerSetup

_log = logging.getLogger("hotrow.worker")


class TrainerRows:
    """The client that a trainer's setup asks for. `hints` announce rows that are on disk; None where none is."""

    def __init__(self, setup: TrainerSetup, wire: RpcClient) -> None:
        tables, values, threads = setup.role.spec.tables, setup.role.values, setup.role.threads
        self._cached: CachedTables | None = None  # with embedding workers those have the caches
        if cached_tables(tables) and not setup.pooled:
            devices = _devices_of_caches(setup)
            self._cached = CachedTables(tables, wire, setup.shards, values=values, threads=threads, devices=devices)
        self.client: RemoteTables = self._cached or (
            PooledTables(tables, wire, values=values, threads=threads)
            if setup.pooled
            else ShardedTables(tables, wire, setup.shards, values=values, threads=threads)
        )
        self.hints = RowHints(tables, wire, setup.shards, threads=threads) if hinted_tables(tables) else None

    @property
    def epoch(self) -> int:
        """How often caches were emptied."""
        return 0 if self._cached is None else self._cached.epoch

    def begin_mode(self, ranks: int) -> None:
        """Caches are empty when a mode begins."""
        if self._cached is not None:
            self._cached.reset(ranks)

    def set_incarnation(self, shard: str, incarnation: int) -> None:
        """A shard was started again."""
        if isinstance(self.client, ShardedTables | CachedTables):
            self.client.set_incarnation(shard, incarnation)

    def prepare_lookup(self, mode: Mode, work: BatchRequest, batch: Batch, epoch: int) -> tuple[Any, int]:
        """A lookup in the form of the client, and the step of the rows that it reads."""
        self.client.samples = work.trained
        versions = mode.late is not None and mode.late.by == "version"
        place, looked_step = None, work.step
        if mode.looks_ahead:  # rows are as the step before leaves them, however early they are read
            place, looked_step = LookupStep(work.grant, work.token, ahead=work.token > work.step), work.token
        elif self._cached is not None:
            place = LookupStep(work.grant, work.token, ahead=False, epoch=epoch)
        lookup = self.client.prepare_lookup(
            batch, learn=True, versions=versions, after=work.after, sample=work.sample, place=place
        )
        return lookup, looked_step

    def flush(self, message: FlushCache) -> CacheFlushed:
        """Write changes of cached rows back."""
        return flush_caches(self._cached, message)

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        traffic = self.client.traffic
        return {
            "bytes_sent": traffic.sent,
            "bytes_received": traffic.received,
            "bytes_plain": traffic.plain,
            **({} if self._cached is None else self._cached.figures()),
            "hints": 0 if self.hints is None else self.hints.sent,
        }


def _devices_of_caches(setup: TrainerSetup) -> dict[str, torch.device]:
    """By table, of those whose cached rows are where the network computes."""
    device = torch.device(setup.device)
    if device.type == "cuda":  # its number, as that of its tensors
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
    there, stay = caches_on_device(setup.role.spec.tables, device)
    for sentence in stay.values():
        _log.warning("%s", sentence)
    return there
