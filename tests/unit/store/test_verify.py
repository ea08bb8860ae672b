"""verify() must see what is broken: here a row is damaged behind the store's back, in the memory of this process."""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hotrow import SGD, Table
from hotrow.store import RamTier

MAPS, MEMORY = Path("/proc/self/maps"), Path("/proc/self/mem")
KEY = 0x5EED_0FA1_1BAD_C0DE
HEADER = struct.Struct("<QII")  # key, version, last_update
ROW_BYTES = HEADER.size + 4 * 4

pytestmark = pytest.mark.skipif(not MEMORY.exists(), reason="needs /proc/self/mem")


def writable_ranges() -> list[tuple[int, int]]:
    """Small ones first: the rows of this test are few, and libraries of other tests have gigabytes."""
    return sorted(all_writable_ranges(), key=lambda each: each[1] - each[0])


def all_writable_ranges() -> Iterator[tuple[int, int]]:
    for line in MAPS.read_text().splitlines():
        addresses, rights, *rest = line.split()
        if rights.startswith("rw") and len(rest) == 3:  # no name: anonymous memory, as the store's
            begin, end = (int(part, 16) for part in addresses.split("-"))
            yield begin, end


def address_of_row(key: int, version: int, last_update: int) -> int:
    wanted, neighbour = (HEADER.pack(key + more, version, last_update) for more in (0, 1))
    with MEMORY.open("rb", buffering=0) as memory:
        for begin, end in writable_ranges():
            memory.seek(begin)
            content = memory.read(end - begin)
            found = content.find(wanted)
            while found >= 0:
                if content[found + ROW_BYTES :].startswith(neighbour):  # not a copy of ours, but a row among rows
                    return begin + found
                found = content.find(wanted, found + 1)
    raise AssertionError("the row is not in memory")


def overwrite(address: int, content: bytes) -> None:
    with MEMORY.open("r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(content)


@pytest.fixture
def tier() -> RamTier:
    tier = RamTier(Table(dim=4, optimizer=SGD()), partitions=1)
    keys = np.arange(100, dtype=np.uint64) + np.uint64(KEY)
    tier.find_or_init(keys)
    tier.apply(keys, np.zeros((100, 4), np.float32), step=76)
    assert tier.verify() == []
    return tier


def test_verify_sees_a_row_whose_key_was_overwritten(tier: RamTier) -> None:
    overwrite(address_of_row(KEY + 50, version=2, last_update=77), struct.pack("<Q", 12345))
    assert any("12345" in fault for fault in tier.verify())


def test_verify_sees_a_row_that_was_marked_free(tier: RamTier) -> None:
    overwrite(address_of_row(KEY + 51, version=2, last_update=77), struct.pack("<QI", KEY + 51, 0))
    assert any("99 live rows, 100 in the index" in fault for fault in tier.verify())
