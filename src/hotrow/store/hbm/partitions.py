"""One table on several GPUs: each key has one partition, by bits of its hash that no bucket uses.

A call comes from one device, that of its keys. Its keys are folded there, so that a row crosses a link once, sorted by
partition, and sent to the GPUs that have them; rows come back and gradients go out the same way. torch copies between
GPUs directly where they are peers. Partitions may share a device.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hotrow.errors import ConfigError
from hotrow.kernels.scatter import scatter
from hotrow.kernels.unique import UniqueKeys, unique
from hotrow.store.applied import Applied
from hotrow.store.hbm.arguments import as_columns, as_keys, as_matrix, check_once
from hotrow.store.hbm.hashing import partition_of
from hotrow.store.hbm.rows import HbmPlan, HbmRows, HbmStats, joined_rows
from hotrow.store.hbm.spec import HbmSpec
from hotrow.store.hbm.tier import HbmTier


@dataclass(frozen=True, slots=True)
class PartitionLookup:
    """The keys of a call that one partition has."""

    partition: int
    index: Tensor  # places among the distinct keys, on the device of the call
    plan: HbmPlan  # on the device of the partition


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedPlan:
    """The keys of a lookup, and the plan of each partition that has some of them."""

    keys: Tensor
    folded: UniqueKeys
    distinct: int  # keys
    parts: list[PartitionLookup]
    evicted: HbmRows | None = None  # the rows that the call displaced in all partitions, on its device

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def absent(self) -> int:
        return sum(part.plan.absent for part in self.parts)

    @property
    def turned_away(self) -> int:
        return sum(part.plan.turned_away for part in self.parts)

    def absent_keys(self) -> Tensor:
        """The keys that have no row."""
        return self.keys[~self.present]

    @property
    def present(self) -> Tensor:
        """For each key, whether it has a row: bool [keys]."""
        present = torch.zeros(self.distinct, dtype=torch.bool, device=self.keys.device)
        for part in self.parts:
            present[part.index] = part.plan.present.to(self.keys.device)
        return present.index_select(0, self.folded.inverse)


def split_by_partition(keys: Tensor, partitions: int) -> list[tuple[int, Tensor]]:
    """Each partition that has some of the keys, and the places of those in their order."""
    owner = partition_of(keys, partitions)
    order = owner.argsort(stable=True)
    counts = owner.bincount(minlength=partitions).tolist()
    return [(number, index) for number, index in enumerate(order.split(counts)) if len(index)]


class HbmPartitions:
    """A table of `spec.capacity` rows on the GPUs of a node, with the calls of `HbmTier` except `batch` and `pool`."""

    def __init__(self, spec: HbmSpec, devices: Sequence[torch.device | str]) -> None:
        if not 1 <= len(devices) <= 1024:
            raise ConfigError(f"devices has {len(devices)} entries: give 1 to 1024, one for each partition")
        share = replace(spec, capacity=spec.capacity // len(devices))
        self.spec = spec
        self.tiers = [HbmTier(share, device) for device in devices]
        self.device = self.tiers[0].device
        self._displaced: list[HbmRows] = []  # that no call has returned yet, each on its own device

    def find(self, keys: Tensor, out: Tensor | None = None) -> PartitionedPlan:
        """As `HbmTier.find`."""
        return self._pull("find", keys, out, lambda tier, own, rows, _: tier.find(own, rows))

    def find_or_init(
        self,
        keys: Tensor,
        out: Tensor | None = None,
        *,
        samples: int = 0,
        pinned: Sequence[PartitionedPlan] = (),
    ) -> PartitionedPlan:
        """As `HbmTier.find_or_init`."""

        def lookup(tier: HbmTier, own: Tensor, rows: Tensor | None, partition: int) -> HbmPlan:
            return tier.find_or_init(own, rows, samples=samples, pinned=_pins(pinned, partition))

        plan = self._pull("find_or_init", keys, out, lookup)
        return replace(plan, evicted=self._take_evicted(plan.keys.device))

    def touch(self, keys: Tensor) -> PartitionedPlan:
        """As `HbmTier.touch`."""
        return self._pull("touch", keys, None, lambda tier, own, _rows, _: tier.touch(own))

    def _pull(
        self,
        who: str,
        keys: Tensor,
        out: Tensor | None,
        lookup: Callable[[HbmTier, Tensor, Tensor | None, int], HbmPlan],
    ) -> PartitionedPlan:
        known = as_keys(who, keys, keys.device)
        if out is not None:
            as_matrix(f"{who}: out", out, len(known), self.spec.dim, known.device)
        folded = unique(known, self.spec.deterministic)
        distinct = folded.keys[: int(folded.size)]
        pulled = None if out is None else out.new_empty(len(distinct), self.spec.dim)

        def look_up(partition: int, index: Tensor) -> HbmPlan:
            tier = self.tiers[partition]
            rows = None if out is None else torch.empty(len(index), self.spec.dim, device=tier.device)
            plan = self._collect_evicted(lookup(tier, distinct[index].to(tier.device), rows, partition))
            if pulled is not None and rows is not None:
                pulled[index] = rows.to(distinct.device)
            return plan

        parts = self._call_parts(distinct, look_up)
        if out is not None and pulled is not None:
            torch.index_select(pulled, 0, folded.inverse, out=out)
        return PartitionedPlan(known, folded, len(distinct), parts)

    def _call_parts(self, keys: Tensor, call: Callable[[int, Tensor], HbmPlan]) -> list[PartitionLookup]:
        """Call each partition that has some of the keys."""
        places = split_by_partition(keys, len(self.tiers))
        return [PartitionLookup(partition, index, call(partition, index)) for partition, index in places]

    def _collect_evicted(self, plan: HbmPlan) -> HbmPlan:
        """Keep what a partition displaced until all of them have been called: one of them may fail."""
        if plan.evicted is not None:
            self._displaced.append(plan.evicted)
            plan.evicted = None
        return plan

    def apply(
        self,
        keys: Tensor | PartitionedPlan,
        gradients: Tensor,
        *,
        step: int = 0,
        samples: int = 0,
        lr_scale: float = 1.0,
    ) -> Applied:
        """As `HbmTier.apply`: duplicates are summed before they are sent."""
        plan = keys if isinstance(keys, PartitionedPlan) else self.find(keys)
        as_matrix("apply: gradients", gradients, len(plan), self.spec.dim, plan.keys.device)
        sums = scatter(plan.folded, gradients)
        done = Applied(0, 0, 0)
        for part in plan.parts:
            tier = self.tiers[part.partition]
            own = sums[part.index].to(tier.device)
            applied = tier.apply(part.plan, own, step=step, samples=samples, lr_scale=lr_scale)
            assert applied is not None
            done += applied
        return done

    def put_and_evict(
        self,
        keys: Tensor,
        values: Tensor,
        state: Tensor | None = None,
        fields: Mapping[str, Tensor] | None = None,
        *,
        saved: bool = False,
        distinct: bool = False,
        pinned: Sequence[PartitionedPlan] = (),
    ) -> PartitionedPlan:
        """As `HbmTier.put_and_evict`."""
        known = as_keys("put_and_evict", keys, keys.device)
        rows = as_columns("put_and_evict", self.spec, known, values, state, fields)
        folded = unique(known, self.spec.deterministic)
        if not distinct:
            check_once("put_and_evict", folded)

        def put(partition: int, index: Tensor) -> HbmPlan:
            tier = self.tiers[partition]
            own = rows.select(index).to(tier.device)
            given = None if state is None else own.state
            pins = _pins(pinned, partition)
            plan = tier.put_and_evict(own.keys, own.values, given, own.fields, saved=saved, distinct=True, pinned=pins)
            return self._collect_evicted(plan)

        parts = self._call_parts(known, put)
        places = folded.inverse.to(torch.int64)
        parts = [replace(part, index=places[part.index]) for part in parts]
        return PartitionedPlan(known, folded, len(known), parts, self._take_evicted(known.device))

    def take_evicted(self) -> HbmRows | None:
        """As `HbmTier.take_evicted`, on the device of the first partition."""
        return self._take_evicted(self.device)

    def _take_evicted(self, device: torch.device) -> HbmRows | None:
        for tier in self.tiers:
            if (rows := tier.take_evicted()) is not None:
                self._displaced.append(rows)
        if not self._displaced:
            return None
        joined = joined_rows([rows.to(device) for rows in self._displaced])
        self._displaced.clear()
        return joined

    def keep_evicted(self, rows: HbmRows) -> None:
        """As `HbmTier.keep_evicted`."""
        self._displaced.append(rows)

    def erase(self, keys: Tensor) -> int:
        """As `HbmTier.erase`."""
        known = as_keys("erase", keys, keys.device)
        places = split_by_partition(known, len(self.tiers))
        return sum(self.tiers[n].erase(known[index].to(self.tiers[n].device)) for n, index in places)

    def clear(self) -> None:
        """As `HbmTier.clear`."""
        for tier in self.tiers:
            tier.clear()
        self._displaced.clear()

    def export(self, rows: int = 65_536, *, changed_only: bool = False) -> Iterator[HbmRows]:
        """As `HbmTier.export`; each chunk is of one partition, on its device."""
        for tier in self.tiers:
            yield from tier.export(rows, changed_only=changed_only)

    def mark_saved(self, keys: Tensor) -> None:
        """As `HbmTier.mark_saved`."""
        known = as_keys("mark_saved", keys, keys.device)
        for number, index in split_by_partition(known, len(self.tiers)):
            self.tiers[number].mark_saved(known[index].to(self.tiers[number].device))

    def __len__(self) -> int:
        return sum(len(tier) for tier in self.tiers)

    @property
    def generation(self) -> int:
        """Changes whenever a row comes or goes."""
        return sum(tier.generation for tier in self.tiers)

    def stats(self) -> HbmStats:
        """The sums over all partitions."""
        first, *others = (tier.stats() for tier in self.tiers)
        return sum(others, first)

    def verify(self) -> list[str]:
        """Faults of each partition, and rows that are in the wrong one."""
        found = []
        for number, tier in enumerate(self.tiers):
            found += [f"partition {number}: {fault}" for fault in tier.verify()]
            for chunk in tier.export():
                wrong = int((partition_of(chunk.keys, len(self.tiers)) != number).sum())
                if wrong:
                    found.append(f"partition {number}: holds {wrong} rows of other partitions")
        return found


def _pins(plans: Sequence[PartitionedPlan], partition: int) -> list[HbmPlan]:
    return [part.plan for plan in plans for part in plan.parts if part.partition == partition]
