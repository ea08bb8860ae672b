"""Faults of the hash table's structure, found with torch alone: no kernel that could be wrong takes part."""

import torch
from torch import Tensor

from hotrow.store.hbm.hashing import EMPTY, REMOVED, places
from hotrow.store.hbm.table import HashTable


def faults(table: HashTable, versions: Tensor, rows: int) -> list[str]:
    """Each fault as a sentence with the slot of its first occurrence."""
    spec = table.spec
    digests = table.digests.to(torch.int64)
    slots = (digests > REMOVED.value).nonzero().squeeze(1)
    keys = table.stored[slots]
    bucket, home, digest = places(keys, spec.buckets, spec.groups)
    found = [
        _fault(slots, slots // spec.bucket_slots != bucket, "holds a key of another bucket"),
        _fault(slots, digests[slots] != digest, "has a digest that is not its key's"),
        _fault(slots, versions[slots] == 0, "holds a row with version 0"),
        _fault(slots, _repeated(keys), "holds a key that another slot holds too"),
        _fault(slots, _cut_off(table, digests, slots, home), "holds a row that no search reaches"),
        _fault((table.locks != 0).nonzero().squeeze(1) * spec.group_slots, None, "is in a group that is still locked"),
    ]
    if len(slots) != rows:
        found.append(f"the table counts {rows} rows, and {len(slots)} slots hold one")
    return [sentence for sentence in found if sentence]


def _fault(slots: Tensor, wrong: Tensor | None, what: str) -> str:
    where = slots if wrong is None else slots[wrong]
    return f"slot {int(where[0])} {what} ({len(where)} such)" if len(where) else ""


def _repeated(keys: Tensor) -> Tensor:
    _, which, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    return torch.gt(counts[which], 1)


def _cut_off(table: HashTable, digests: Tensor, slots: Tensor, home: Tensor) -> Tensor:
    """Whether a group between the home of a key and its row has an EMPTY slot."""
    spec = table.spec
    ends = (digests.reshape(-1, spec.group_slots) == EMPTY.value).any(1)
    group = slots // spec.group_slots
    first = group // spec.groups * spec.groups
    distance = (group % spec.groups - home) % spec.groups
    cut = torch.zeros_like(slots, dtype=torch.bool)
    for turn in range(spec.groups - 1):
        cut |= (turn < distance) & ends[first + (home + turn) % spec.groups]
    return cut
