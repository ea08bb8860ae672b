"""A checkpoint in another model and other tables: what fits is taken bit for bit, a refusal changes nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hotrow as hr
from hotrow import checkpoint
from hotrow.checkpoint import LoadRules
from hotrow.store import RamTier, Rows

KEYS = np.arange(300, dtype=np.uint64)
SAVED = checkpoint.Saved({"step": 5, "samples": 640_000}, None, {})


class Net(nn.Module):
    def __init__(self, first: str = "first", wide: int = 4, more: bool = False) -> None:
        super().__init__()
        self.add_module(first, nn.Linear(3, 4))
        self.last = nn.Linear(wide, 1)
        if more:
            self.more = nn.Linear(2, 2)


def tier_of(table: hr.Table) -> RamTier:
    """With rows that have learned."""
    tier = RamTier(table)
    rng = np.random.default_rng(1)
    for step in range(2):
        plan = tier.find_or_init(KEYS, samples=640_000)
        tier.apply(plan, rng.normal(size=(len(KEYS), 3)).astype(np.float32), step=step, samples=640_000)
    return tier


def adam_of(net: nn.Module) -> torch.optim.Optimizer:
    """That has learned."""
    made = torch.optim.Adam(net.parameters(), lr=0.1)
    for parameter in net.parameters():
        parameter.grad = torch.rand_like(parameter)
    made.step()
    return made


def whole(tier: RamTier) -> Rows:
    (chunk,) = tier.export()
    order = np.argsort(chunk.keys)
    fields = {name: column[order] for name, column in chunk.fields.items()}
    return Rows(chunk.keys[order], chunk.values[order], chunk.state[order], fields)


def load_tables(folder: Path, table: hr.Table, **rules: object) -> tuple[RamTier, list[str]]:
    tier = RamTier(table)
    loaded = checkpoint.load_into(folder, Net(), None, {"t": tier}, LoadRules(**rules))  # type: ignore[arg-type]
    return tier, [line for line in loaded.lines if line.startswith("table")]


def saved(folder: Path, table: hr.Table) -> Rows:
    tier = tier_of(table)
    checkpoint.save(folder, Net(), None, {"t": tier}, SAVED)
    return whole(tier)


def test_with_another_optimizer_values_are_taken_and_state_is_that_of_a_new_row(tmp_path: Path) -> None:
    before = saved(tmp_path, hr.Table(dim=3, optimizer=hr.Adam()))
    tier, lines = load_tables(tmp_path, hr.Table(dim=3, optimizer=hr.Adagrad(initial=0.25)))
    now = whole(tier)
    assert (now.values == before.values).all()
    assert (now.state == 0.25).all()
    assert (now.fields["version"] == before.fields["version"]).all()
    assert len(lines) == 1


@pytest.mark.parametrize("eviction", ["lru", "refuse"])
def test_rows_beyond_a_capacity_are_counted(eviction: str, tmp_path: Path) -> None:
    saved(tmp_path, hr.Table(dim=3, last_seen=True))
    tier, lines = load_tables(tmp_path, hr.Table(dim=3, last_seen=True, capacity=100, eviction=eviction))
    lost = 300 - len(tier)
    assert lost >= 200
    how = "evicted by lru" if eviction == "lru" else "refused"
    assert lines[-1].endswith(f"None in the checkpoint and 100 here: {lost} of 300 rows are {how}")


def test_rows_of_another_type_are_converted_and_numbers_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    tier = tier_of(hr.Table(dim=3))
    tier.put(np.array([7]), np.full((1, 3), 1e30, np.float32))
    checkpoint.save(tmp_path, Net(), None, {"t": tier}, SAVED)
    half, lines = load_tables(tmp_path, hr.Table(dim=3, type="float16"))
    assert lines[-1] == "table 't': 3 numbers are too large for type='float16': they become its largest"
    before, now = whole(tier), whole(half)
    others = before.keys != 7
    np.testing.assert_allclose(now.values[others], before.values[others], rtol=1e-2, atol=1e-4)
    assert (now.state == before.state).all()


def test_a_table_that_gets_an_expiry_does_not_lose_all_rows_at_once(tmp_path: Path) -> None:
    saved(tmp_path / "plain", hr.Table(dim=3))
    tier, _ = load_tables(tmp_path / "plain", hr.Table(dim=3, expiry=1000))
    assert tier.expire(640_900) == 0
    assert tier.expire(650_000) == 300
    saved(tmp_path / "seen", hr.Table(dim=3, last_seen=True))  # in ticks of 1,024 samples
    tier, _ = load_tables(tmp_path / "seen", hr.Table(dim=3, expiry=100_000))  # of 2
    assert tier.expire(730_000) == 0
    assert tier.expire(745_000) == 300


@pytest.mark.parametrize("filter_bytes", [None, 65_536])
@pytest.mark.parametrize("has_rows", [False, True])
@pytest.mark.parametrize("name", ["t", "new"])
def test_counts_that_are_not_in_the_checkpoint_start_at_0(
    name: str, has_rows: bool, filter_bytes: int | None, tmp_path: Path
) -> None:
    saved(tmp_path, hr.Table(dim=3, admission=hr.AtLeast(count=2)))
    key = np.array([1_000], np.uint64)
    tier = RamTier(hr.Table(dim=3, admission=hr.AtLeast(count=5, filter=filter_bytes)))
    for _ in range(4):
        tier.find_or_init(key)
    if has_rows:
        tier.put(key + 1, np.zeros((1, 3), np.float32))
    tiers = {"t": RamTier(hr.Table(dim=3)), name: tier}
    checkpoint.load_into(tmp_path, Net(), None, tiers, LoadRules())
    for _ in range(4):
        tier.find_or_init(key)
        assert tier.versions(key) == [0]
    tier.find_or_init(key)
    assert tier.versions(key) == [1]


def test_a_table_that_is_not_in_the_checkpoint_is_empty(tmp_path: Path) -> None:
    saved(tmp_path, hr.Table(dim=3))
    tier = tier_of(hr.Table(dim=3))
    checkpoint.load_into(tmp_path, Net(), None, {"new": tier}, LoadRules(skip=["t"]))
    assert len(tier) == 0


def test_tensors_and_their_optimizer_state_follow_names(tmp_path: Path) -> None:
    net = Net()
    adam = adam_of(net)
    checkpoint.save(tmp_path, net, adam, {}, SAVED)
    other = Net("renamed", more=True)
    new = other.more.weight.detach().clone()
    behind = torch.optim.Adam([*reversed(list(other.parameters()))], lr=0.5)  # another order
    random = torch.get_rng_state()
    loaded = checkpoint.load_into(tmp_path, other, behind, {}, LoadRules(map={"first": "renamed"}))
    assert loaded.lines == [
        "dense layer 'first' of the checkpoint is 'renamed' here",
        "dense layer 'more' (bias, weight) is not in the checkpoint: it starts fresh",
    ]
    assert torch.equal(torch.get_rng_state(), random)
    theirs, ours = dict(net.named_parameters()), dict(other.named_parameters())
    for name, mine in (("first.weight", "renamed.weight"), ("last.bias", "last.bias")):
        assert torch.equal(theirs[name], ours[mine])
        assert torch.equal(adam.state[theirs[name]]["exp_avg"], behind.state[ours[mine]]["exp_avg"])
    assert torch.equal(other.more.weight, new)
    assert ours["more.weight"] not in behind.state
    assert behind.param_groups[0]["lr"] == 0.5


def test_an_optimizer_that_has_state_from_the_start_keeps_that_of_new_parameters(tmp_path: Path) -> None:
    net = Net()
    checkpoint.save(tmp_path, net, torch.optim.Adagrad(net.parameters()), {}, SAVED)
    other = Net(more=True)
    adagrad = torch.optim.Adagrad(other.parameters(), initial_accumulator_value=0.5)
    checkpoint.load_into(tmp_path, other, adagrad, {}, LoadRules())
    assert (adagrad.state[other.more.weight]["sum"] == 0.5).all()
    assert (adagrad.state[other.last.weight]["sum"] == 0).all()


def test_a_strict_load_follows_names_too(tmp_path: Path) -> None:
    net = Net()
    adam = adam_of(net)
    checkpoint.save(tmp_path, net, adam, {}, SAVED)
    other = Net()
    behind = torch.optim.Adam([*reversed(list(other.parameters()))])
    checkpoint.load(tmp_path, other, behind, {})
    for mine, theirs in zip(other.parameters(), net.parameters(), strict=True):
        assert torch.equal(behind.state[mine]["exp_avg"], adam.state[theirs]["exp_avg"])


def test_a_refusal_changes_nothing(tmp_path: Path) -> None:
    net = Net()
    checkpoint.save(tmp_path, net, adam_of(net), {"t": tier_of(hr.Table(dim=3))}, SAVED)
    other, tier = Net(wide=9), RamTier(hr.Table(dim=3))
    before = [parameter.detach().clone() for parameter in other.parameters()]
    changing: list[str] = []
    with pytest.raises(hr.InputError, match=r"'last.weight' is \(1, 4\) .* leave it out with --skip last"):
        checkpoint.load_into(tmp_path, other, None, {"t": tier}, LoadRules(), changing=lambda: changing.append("now"))
    assert not changing
    assert len(tier) == 0
    assert all(torch.equal(was, now) for was, now in zip(before, other.parameters(), strict=True))
