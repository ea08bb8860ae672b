"""Shards beside one server that holds all rows, fed the same pushes and steps: the oracle of the shards."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import nn

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.client.aggregate import Average, RowGradients
from hotrow.modes import base
from hotrow.optim.sparse import Swap
from hotrow.server import ParameterServer
from hotrow.server.shard import Shard
from hotrow.staleness import Staleness
from hotrow.store import RamTier
from hotrow.store.shards import shard_of
from hotrow.transport.frames import RowBlock
from hotrow.transport.messages import ApplyOrder, Arrival, OrderPart, OrderResult, PullRows, PushRows, Taken
from hotrow.worker import Gradients

F32 = NDArray[np.float32]
U32 = NDArray[np.uint32]
KEYS = np.array([0, 1, 2, 3, 8, 9, 12, 2**63, 2**64 - 1], np.uint64)  # of 2 and of 3 shards, each has some
TABLES = {
    "first": hr.Table(dim=2, optimizer=hr.Adagrad(lr=0.1, swap=Swap(period=12, decay=0.5))),
    "second": hr.Table(dim=3, optimizer=hr.SGD(lr=0.5)),
}


@dataclass(slots=True, eq=False)
class Made:
    """A push as it goes to every shard."""

    push: PushRows
    blocks: list[list[RowBlock]]  # by shard
    whole: Gradients


@dataclass(slots=True, eq=False)
class Pair:
    """`step` and `samples` are the coordinator's."""

    shards: list[Shard]
    server: ParameterServer
    step: int = 0
    samples: int = 0
    order: int = 0
    grants: int = 0
    made: dict[int, Made] = field(default_factory=dict)
    parked: list[int] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    lateness: Counter[int] = field(default_factory=Counter)
    whole: Counter[str] = field(default_factory=Counter)  # what the server told
    whole_lateness: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, shards: int) -> "Pair":
        parts = [Shard(TABLES, number=number, shards=shards) for number in range(shards)]
        return cls(parts, ParameterServer(nn.Module(), LocalTables(TABLES, threads=1), None))

    def make(self, chosen: dict[str, list[int]], seed: int, samples: int, *, behind: int = 0) -> Made:
        """Pull rows everywhere, and make up their gradients. `chosen`: by table, numbers of KEYS."""
        self.grants += 1
        generator = np.random.default_rng(seed)
        blocks: list[list[RowBlock]] = [[] for _ in self.shards]
        rows = {}
        for table, numbers in chosen.items():
            keys = KEYS[numbers]
            tier = self.server.tables.tiers[table]
            pulled = np.empty((len(keys), tier.dim), np.float32)
            plan = tier.find_or_init(keys, pulled, samples=self.server.tables.samples)
            versions = tier.versions(plan)
            gradients = generator.normal(size=pulled.shape).astype(np.float32)
            if seed % 7 == 0:
                gradients[0] = np.nan
            rows[table] = RowGradients(keys.view(np.int64), plan, gradients, versions=versions)
            for number, shard in enumerate(self.shards):
                mine = shard_of(keys, len(self.shards)) == number
                values, changes = pull(shard, table, keys[mine])
                np.testing.assert_allclose(values, pulled[mine], atol=1e-6)
                np.testing.assert_array_equal(changes, versions[mine])
                blocks[number].append(RowBlock(table, keys[mine], gradients[mine], changes))
        pulled_step = max(0, self.step - behind)
        push = PushRows(self.grants, 0, pulled_step + seed % 3, pulled_step, samples, ())
        made = Made(push, blocks, Gradients(samples, [], rows, torch.zeros(()), torch.zeros(samples)))
        self.made[self.grants] = made
        return made

    def send(self, made: Made, arrival: Arrival | None = None) -> list[Taken]:
        """To all shards."""
        push = replace(made.push, arrival=arrival)
        found = [shard.exchange(push, made.blocks[n], None, ())[0] for n, shard in enumerate(self.shards)]
        return [taken for taken in found if taken is not None]

    def park(self, made: Made) -> None:
        assert not any(taken.again for taken in self.send(made))
        self.server.park(made.push.grant, made.whole)
        self.parked.append(made.push.grant)

    def arrive(self, made: Made, factor: float, lr_scale: float) -> None:
        self.samples += made.push.samples
        taken = self.send(made, Arrival(self.samples, lr_scale, factor))
        assert not any(each.again for each in taken)
        push = made.push
        self.server.park(push.grant, made.whole)
        part = base.GradientPart(push.grant, push.token, push.pulled_step, push.samples, factor)
        self._take(base.Apply("embedding", self.step, (part,)), lr_scale)

    def apply(self, grants: list[int], group: base.Group, weight: float, lr_scale: float = 1.0) -> None:
        """A step of parked pushes."""
        pushes = [self.made[grant].push for grant in grants]
        parts = [base.GradientPart(each.grant, each.token, each.pulled_step, each.samples, weight) for each in pushes]
        effect = base.Apply(group, self.step, tuple(parts))
        self.samples += effect.samples
        self._take(effect, lr_scale)
        theirs = tuple(OrderPart(each.grant, each.token, each.pulled_step, each.samples, weight) for each in parts)
        self.perform([ApplyOrder(group, self.step, self.samples, lr_scale, theirs)])
        self.parked = [grant for grant in self.parked if grant not in grants]
        self.step += group != "embedding"

    def dense(self) -> None:
        """A dense step; its rows were applied on arrival, or it has none."""
        self.perform([ApplyOrder("dense", self.step, self.samples, 1.0, ())])
        self.step += 1

    def perform(self, applies: list[ApplyOrder], discards: tuple[int, ...] = ()) -> None:
        """As the next order, which comes twice."""
        self.order += 1
        for shard in self.shards:
            answer = shard.perform(self.order, applies, discards)
            assert answer == shard.perform(self.order, applies, discards)
            self._hear(answer)

    def discard(self, grant: int) -> None:
        self.perform([], discards=(grant,))
        self.server.discard(grant)
        self.parked = [each for each in self.parked if each != grant]

    def policy(self, average: Average, late: Staleness | None) -> None:
        self.order += 1
        text = None if late is None else late.model_dump_json()
        for shard in self.shards:
            self._hear(shard.policy(self.order, average, text))
        self.server.average, self.server.late = average, late

    def check(self) -> None:
        """Every row is the same, wherever it is."""
        self.perform([])  # whatever was not told yet
        for table, tier in self.server.tables.tiers.items():
            expected = _by_key(tier)
            found: dict[int, list[float]] = {}
            for number, shard in enumerate(self.shards):
                mine = _by_key(shard.tables.tiers[table])
                assert all(shard_of(np.array([key], np.uint64), len(self.shards)) == number for key in mine)
                found |= mine
            assert found.keys() == expected.keys()
            for key, row in expected.items():
                np.testing.assert_allclose(found[key], row, atol=1e-6, err_msg=f"{table} {key}")
        assert self.lateness == self.whole_lateness
        assert {name: self.told[name] for name in self.whole} == dict(self.whole)

    def _take(self, effect: base.Apply, lr_scale: float) -> None:
        changed = self.server.apply(effect, samples=self.samples, lr_scale=lr_scale)
        self.whole_lateness.update(changed.ids.late.counts)
        self.whole.update(refused=changed.refused, weightless=changed.weightless)
        for part in effect.parts:
            self.server.discard(part.grant)  # its dense half, which nobody has

    def _hear(self, answer: OrderResult) -> None:
        self.told.update(refused=answer.refused, weightless=answer.weightless, missing=answer.missing)
        self.lateness.update(dict(answer.lateness))


def pull(shard: Shard, table: str, keys: NDArray[np.uint64], *, learn: bool = True) -> tuple[F32, U32]:
    """Values and versions."""
    _, found = shard.exchange(None, (), PullRows(0, 0, learn, True, "fp32", ()), [RowBlock(table, keys)])
    assert found is not None
    return np.array(found.blocks[0].values, np.float32), np.array(found.blocks[0].versions, np.uint32)


def _by_key(tier: RamTier) -> dict[int, list[float]]:
    """Value, state, version and last update of every row."""
    return {
        int(key): [*rows.values[n], *rows.state[n], rows.fields["version"][n], rows.fields["last_update"][n]]
        for rows in tier.export()
        for n, key in enumerate(rows.keys)
    }
