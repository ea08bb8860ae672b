"""RocksDB as a peer of `hotrow bench tiers`: rows as values of a key-value store, the optimizer in numpy."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow.bench.peers import EPS, Adapter

KEY_BYTES = 8
FLOAT_BYTES = 4
WRITE_BUFFERS = 4  # RocksDB fills one while it writes the others
FILTER_BITS = 10  # of a key


class RocksPeer:
    """A database in a folder; a value is the row's value and its Adagrad moment.

    Reads and writes are direct. A quarter of the memory is for write buffers, the rest is the block cache, which holds
    indexes and filters too. A multi_get reads block after block, so a batch is split over `depth` threads with a
    multi_get each: with 32 of them 10,000 keys take a quarter of the time. There is no log: a table in memory has none.
    """

    def __init__(self, folder: Path, dim: int, *, memory_bytes: int, lr: float, depth: int) -> None:
        rocksdict: Any = import_module("rocksdict")  # optional; its stubs are wrong
        self._rocks = rocksdict
        self._folder, self._dim, self._lr, self._depth = folder, dim, lr, depth
        self._db = rocksdict.Rdict(str(folder), _options(rocksdict, memory_bytes))
        self._unlogged = rocksdict.WriteOptions()
        self._unlogged.disable_wal = True
        self._threads = ThreadPoolExecutor(depth)

    def fill(self, keys: NDArray[np.uint64], values: NDArray[np.float32], state: NDArray[np.float32]) -> None:
        self._put(_texts(keys), np.concatenate([values, state], axis=1))

    def settle(self) -> None:
        self._db.flush()
        self._db.compact_range(None, None)

    def step(self, keys: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
        unique, inverse = np.unique(keys, return_inverse=True)
        summed = _summed(gradients, inverse, len(unique))
        texts = _texts(unique)
        rows = self.read(texts)
        values, moments = rows[:, : self._dim], rows[:, self._dim :]
        values[inverse]  # what the network gets: a row for each id
        moments += summed * summed
        values -= self._lr * summed / (np.sqrt(moments) + EPS)
        self._put(texts, rows)

    def read(self, texts: Sequence[bytes]) -> NDArray[np.float32]:
        """Rows of keys that are all there: value, then moment."""
        part = max(-(-len(texts) // self._depth), 1)
        parts = [texts[start : start + part] for start in range(0, len(texts), part)]
        found = b"".join(b"".join(each) for each in self._threads.map(self._db.get, parts))
        return np.frombuffer(bytearray(found), np.float32).reshape(len(texts), 2 * self._dim)

    def close(self) -> None:
        self._threads.shutdown()
        self._db.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _put(self, texts: Sequence[bytes], rows: NDArray[np.float32]) -> None:
        width, data = 2 * self._dim * FLOAT_BYTES, rows.tobytes()
        batch = self._rocks.WriteBatch(raw_mode=True)
        for place, text in enumerate(texts):
            batch.put(text, data[place * width : (place + 1) * width])
        self._db.write(batch, self._unlogged)


def lack() -> str | None:
    """What is missing to run RocksDB here."""
    return None if find_spec("rocksdict") else "RocksDB is not installed: pip install rocksdict"


def _options(rocksdict: Any, memory_bytes: int) -> Any:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_use_direct_reads(True)
    options.set_use_direct_io_for_flush_and_compaction(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())  # random floats do not compress
    options.set_max_background_jobs(2)
    buffers = memory_bytes // 4
    options.set_write_buffer_size(max(buffers // WRITE_BUFFERS, 64 << 10))
    options.set_max_write_buffer_number(WRITE_BUFFERS)
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(rocksdict.Cache(memory_bytes - buffers))
    blocks.set_bloom_filter(FILTER_BITS, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_block_based_table_factory(blocks)
    return options


def _texts(keys: NDArray[Any]) -> list[bytes]:
    """Keys as the database has them; sorted keys stay sorted."""
    data = keys.astype(">u8").tobytes()
    return [data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)]


def _summed(gradients: NDArray[np.float32], inverse: NDArray[np.intp], unique: int) -> NDArray[np.float32]:
    """Of each unique key."""
    order = np.argsort(inverse, kind="stable")
    starts = np.searchsorted(inverse[order], np.arange(unique))
    found: NDArray[np.float32] = np.add.reduceat(gradients[order], starts, axis=0)
    return found


ADAPTER = Adapter(name="rocksdb", title="RocksDB", versions={"rocksdict": "rocksdict"}, lack=lack, tiers=RocksPeer)
