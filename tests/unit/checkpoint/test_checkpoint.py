"""What was saved comes back bit for bit; what does not fit, or was damaged, is refused before anything changes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hotrow as hr
from hotrow import checkpoint
from hotrow.store import RamTier

TABLES = {
    "sgd": hr.Table(dim=3, optimizer=hr.SGD()),
    "adagrad": hr.Table(dim=3),
    "adam": hr.Table(dim=3, optimizer=hr.Adam()),
    "bfloat16": hr.Table(dim=3, type="bfloat16"),
    "lru": hr.Table(dim=3, capacity=1000),
    "lfu": hr.Table(dim=3, capacity=1000, eviction="lfu"),
    "clock": hr.Table(dim=3, clock=True, last_seen=True),
}
ABOUT = checkpoint.Saved({"step": 5, "samples": 640}, {"epoch": 1}, {"note": "hello"})


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def trained(seed: int, table: hr.Table, keys: int = 300) -> tuple[Net, torch.optim.Optimizer, dict[str, RamTier]]:
    torch.manual_seed(seed)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    tier = RamTier(table)
    rng = np.random.default_rng(seed)
    for step in range(3):
        ids = rng.integers(0, keys, 64)
        out = torch.empty(64, 3)
        batch = tier.find_or_init(ids, out)
        out.requires_grad_()
        optimizer.zero_grad()
        net(out).square().mean().backward()
        optimizer.step()
        assert out.grad is not None
        tier.apply(batch, out.grad, step=step, samples=64 * (step + 1))
    return net, optimizer, {"t": tier}


def rows(tier: RamTier) -> dict[int, bytes]:
    found = {}
    for chunk in tier.export():
        columns = [chunk.values, chunk.state, *(chunk.fields[name] for name in tier.fields)]
        for at, key in enumerate(chunk.keys):
            found[int(key)] = b"".join(column[at].tobytes() for column in columns)
    return found


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_everything_comes_back_bit_for_bit(table: hr.Table, tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, table)
    checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT)
    random = torch.rand(3)
    other, other_optimizer, other_tiers = trained(1, table)
    assert checkpoint.load(tmp_path / "c", other, other_optimizer, other_tiers).saved == ABOUT
    assert rows(other_tiers["t"]) == rows(tiers["t"])
    assert torch.equal(torch.rand(3), random)
    for ours, theirs in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    for model, dense in ((net, optimizer), (other, other_optimizer)):
        dense.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        dense.step()
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    if table.policy is not None:
        for partition in range(tiers["t"].partitions):
            left, right = tiers["t"].eviction_order(partition), other_tiers["t"].eviction_order(partition)
            assert left.tolist() == right.tolist()


def test_rows_that_became_infinite_come_back_too(tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, hr.Table(dim=3, optimizer=hr.SGD(lr=1e19)))
    for step in range(5):
        tiers["t"].apply(np.arange(5), np.full((5, 3), 1e19, np.float32), step=step)
    saved = rows(tiers["t"])
    checkpoint.save(tmp_path, net, optimizer, tiers, ABOUT)
    other, its, theirs = trained(1, hr.Table(dim=3, optimizer=hr.SGD(lr=1e19)))
    checkpoint.load(tmp_path, other, its, theirs)
    assert rows(theirs["t"]) == saved
    assert not all(np.isfinite(chunk.values).all() for chunk in theirs["t"].export())


def test_rows_that_came_after_the_save_are_gone_after_the_load(tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, TABLES["adagrad"])
    checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT)
    before = rows(tiers["t"])
    tiers["t"].find_or_init(np.arange(10_000, 10_050))
    checkpoint.load(tmp_path / "c", net, optimizer, tiers)
    assert rows(tiers["t"]) == before


@pytest.mark.parametrize(("saved", "now"), [("adagrad", "lru"), ("lru", "adagrad")])
def test_a_table_may_get_or_lose_its_capacity(saved: str, now: str, tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, TABLES[saved])
    checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT)
    other = RamTier(TABLES[now])
    checkpoint.load(tmp_path / "c", net, optimizer, {"t": other})
    keys = np.concatenate([chunk.keys for chunk in tiers["t"].export()])
    found = [np.empty((len(keys), 3), np.float32) for _ in range(2)]
    for tier, values in zip((tiers["t"], other), found, strict=True):
        tier.find(keys, values)
    assert (found[0] == found[1]).all()
    assert (tiers["t"].versions(keys) == other.versions(keys)).all()


def test_an_empty_table_and_a_model_without_optimizer(tmp_path: Path) -> None:
    net, tiers = Net(), {"t": RamTier(TABLES["lru"])}
    checkpoint.save(tmp_path / "c", net, None, tiers, ABOUT)
    checkpoint.load(tmp_path / "c", net, None, tiers)
    assert len(tiers["t"]) == 0


def test_a_table_larger_than_a_chunk_keeps_its_order(tmp_path: Path) -> None:
    table = hr.Table(dim=1, capacity=200_000)
    tier = RamTier(table)
    tier.find_or_init(np.arange(150_000))
    tier.find_or_init(np.arange(0, 150_000, 7))  # these are newer now
    checkpoint.save(tmp_path / "c", Net(), None, {"t": tier}, ABOUT)
    back = RamTier(table)
    checkpoint.load(tmp_path / "c", Net(), None, {"t": back})
    assert len(back) == 150_000
    for partition in range(tier.partitions):
        assert (tier.eviction_order(partition) == back.eviction_order(partition)).all()


DAMAGE = {
    "a flipped byte": lambda file: file.write_bytes(file.read_bytes()[:-9] + b"\xff" + file.read_bytes()[-8:]),
    "a cut end": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "a missing file": lambda file: file.unlink(),
}


@pytest.mark.parametrize("file", ["dense.safetensors", "tables/0/0-of-1.arrow"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_changes_nothing(damage: object, file: str, tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, TABLES["adagrad"])
    checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT)
    assert callable(damage)
    damage(tmp_path / "c" / "000001" / file)
    other, other_optimizer, other_tiers = trained(1, TABLES["adagrad"])
    before, weights = rows(other_tiers["t"]), [p.clone() for p in other.parameters()]
    with pytest.raises(hr.InputError, match=r"missing|was changed since|bytes and was saved with"):
        checkpoint.load(tmp_path / "c", other, other_optimizer, other_tiers)
    assert rows(other_tiers["t"]) == before
    assert all(torch.equal(ours, was) for ours, was in zip(other.parameters(), weights, strict=True))


BROKEN = {"in the keys": 0.35, "in the values": 0.5, "in the index of the file": 0.99}


@pytest.mark.parametrize("share", BROKEN.values(), ids=BROKEN)
def test_empty_tables_are_empty_after_a_damaged_file(share: float, tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, TABLES["adagrad"])
    checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT)
    file = tmp_path / "c" / "000001" / "tables/0/0-of-1.arrow"
    data = bytearray(file.read_bytes())
    data[at := int(share * len(data))] ^= 0x7F
    file.write_bytes(data)
    other, other_optimizer, empty = Net(), None, RamTier(TABLES["adagrad"])
    told: list[str] = []
    with pytest.raises(hr.InputError, match=r"0-of-1\.arrow was changed since it was saved: take another checkpoint"):
        checkpoint.load_into(
            tmp_path / "c",
            other,
            other_optimizer,
            {"t": empty},
            checkpoint.LoadRules(),
            changing=lambda: told.append(""),
        )
    assert len(empty) == 0
    assert not told
    file.write_bytes(bytes(each ^ 0x7F if place == at else each for place, each in enumerate(data)))
    checkpoint.load_into(tmp_path / "c", other, other_optimizer, {"t": empty}, checkpoint.LoadRules())
    assert rows(empty) == rows(tiers["t"])


def test_the_clock_and_the_swap_period_of_an_empty_table_stay_after_a_damaged_file(tmp_path: Path) -> None:
    table = hr.Table(dim=2, optimizer=hr.Adagrad(swap=hr.Swap(period=10_000, decay=0.5)), expiry=100_000)
    keys, zeros = np.arange(100, dtype=np.uint64), np.zeros((100, 2), np.float32)
    saved = RamTier(table)
    saved.find_or_init(keys, samples=90_000)
    checkpoint.save(tmp_path / "c", Net(), None, {"t": saved}, ABOUT)
    DAMAGE["a flipped byte"](tmp_path / "c" / "000001" / "tables/0/0-of-1.arrow")
    loaded, untouched = RamTier(table), RamTier(table)
    for tier in (loaded, untouched):
        tier.find_or_init(keys[:0], samples=20_000)
    with pytest.raises(hr.InputError, match="was changed since it was saved"):
        checkpoint.load_into(tmp_path / "c", Net(), None, {"t": loaded}, checkpoint.LoadRules())
    assert loaded.samples == untouched.samples
    for tier in (loaded, untouched):
        tier.put(keys, zeros, zeros + 16)
        tier.apply(keys, zeros, samples=40_000)
    assert rows(loaded) == rows(untouched)
    assert loaded.expire(130_000) == untouched.expire(130_000) == 100


MISFITS = {
    "another table": ({"u": RamTier(TABLES["adagrad"])}, "it has the tables t and this run u"),
    "another dim": ({"t": RamTier(hr.Table(dim=4))}, "dim is 3 in the state and 4"),
    "another optimizer": ({"t": RamTier(TABLES["adam"])}, "optimizer.name is 'adagrad'"),
    "no room": ({"t": RamTier(hr.Table(dim=3, capacity=32))}, "rows do not fit capacity=32"),
}


@pytest.mark.parametrize(("tiers", "sentence"), MISFITS.values(), ids=MISFITS)
def test_tables_that_do_not_fit_are_refused(tiers: dict[str, RamTier], sentence: str, tmp_path: Path) -> None:
    net, optimizer, saved = trained(0, TABLES["adagrad"])
    checkpoint.save(tmp_path / "c", net, optimizer, saved, ABOUT)
    with pytest.raises(hr.InputError, match=sentence):
        checkpoint.load(tmp_path / "c", net, optimizer, tiers)


def test_models_and_optimizers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, TABLES["adagrad"])
    checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(hr.InputError, match="optimizer is Adam and this run's SGD"):
        checkpoint.load(tmp_path / "c", net, sgd, tiers)
    with pytest.raises(hr.InputError, match="optimizer is Adam and this run's None"):
        checkpoint.load(tmp_path / "c", net, None, tiers)
    two = torch.optim.Adam([{"params": [p]} for p in net.parameters()])
    with pytest.raises(hr.InputError, match="other parameter groups"):
        checkpoint.load(tmp_path / "c", net, two, tiers)
    with pytest.raises(hr.InputError, match=r"'0.bias' is \(4,\) in the checkpoint and \(5,\)"):
        checkpoint.load(tmp_path / "c", nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(4), nn.Linear(4, 1)), None, tiers)
    with pytest.raises(hr.InputError, match=r"has no 'more.bias'"):
        checkpoint.load(tmp_path / "c", nn.ModuleDict({"more": net[0]}), None, tiers)


def test_a_model_that_holds_rows_itself_is_told_where_they_belong(tmp_path: Path) -> None:
    with pytest.raises(hr.InputError, match="give embedding tables to the Trainer"):
        checkpoint.save(tmp_path / "c", hr.nn.EmbeddingBag(dim=2), None, {}, ABOUT)


def test_a_writer_that_died_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, TABLES["adagrad"])
    folder = checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT)
    shutil.copytree(folder / "000001", folder / "000002")
    (folder / "000002" / "manifest.json").unlink()  # it is written last
    assert checkpoint.peek(folder) == ABOUT
    checkpoint.load(folder, net, optimizer, tiers)
    checkpoint.save(folder, net, optimizer, tiers, ABOUT)
    assert [path.name for path in folder.iterdir()] == ["000003"]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_so_many_checkpoints_are_kept(keep: int, tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, TABLES["adagrad"])
    for _ in range(4):
        checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT, keep=keep)
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [f"{each:06d}" for each in range(5 - keep, 5)]


def test_one_has_to_be_kept(tmp_path: Path) -> None:
    with pytest.raises(hr.ConfigError, match="keep=0: the newest checkpoint is always kept"):
        checkpoint.save(tmp_path / "c", Net(), None, {}, ABOUT, keep=0)


def test_a_load_that_fails_half_way_is_told_to_the_caller(tmp_path: Path) -> None:
    net, optimizer, tiers = trained(0, TABLES["adagrad"])
    checkpoint.save(tmp_path / "c", net, optimizer, tiers, ABOUT)
    told: list[str] = []
    with pytest.raises(hr.InputError):
        checkpoint.load(tmp_path / "c", net, None, tiers, changing=lambda: told.append("refused"))
    assert not told
    checkpoint.load(tmp_path / "c", net, optimizer, tiers, changing=lambda: told.append("changing"))
    assert told == ["changing"]


def test_what_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    with pytest.raises(hr.InputError, match=r"there is none in it"):
        checkpoint.peek(tmp_path / "nothing")
    folder = checkpoint.save(tmp_path / "c", Net(), None, {}, ABOUT)
    file = folder / "000001" / "manifest.json"
    manifest = json.loads(file.read_text())
    for text, sentence in (
        ("{", "cannot be read"),
        ("[]", "is not one of ours"),
        (json.dumps({**manifest, "version": 4}), r"its version is 4 and this Hotrow reads 3: use the Hotrow"),
        (json.dumps({**manifest, "version": [1]}), r"its version is \[1\] and this Hotrow reads 3: use"),
        (json.dumps({**manifest, "version": 1}), r"its version is 1 .* \(ids of texts .* would name other rows\): use"),
    ):
        file.write_text(text)
        with pytest.raises(hr.InputError, match=sentence):
            checkpoint.peek(folder)


def test_a_checkpoint_of_the_format_before_is_told(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "hotrow checkpoint", "version": 2}))
    with pytest.raises(hr.InputError, match="its version is 2 and this Hotrow reads 3"):
        checkpoint.peek(tmp_path)


FIELDS = ["number", "kind", "hotrow", "saved_at", "counters", "position", "about", "optimizer", "tables", "files"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_manifest_with_a_field_of_another_kind_is_told(field: str, tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path / "c", Net(), None, {}, ABOUT)
    file = folder / "000001" / "manifest.json"
    whole = json.loads(file.read_text())
    without = {name: each for name, each in whole.items() if name != field}
    for wrong in (whole | {field: [3]}, whole | {field: -1}, without):
        file.write_text(json.dumps(wrong))
        with pytest.raises(hr.InputError, match=f"manifest.json is damaged: {field}: "):
            checkpoint.peek(folder)


def test_a_manifest_with_a_field_that_is_not_known_is_told(tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path / "c", Net(), None, {}, ABOUT)
    file = folder / "000001" / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "more": 1}))
    with pytest.raises(hr.InputError, match=r"manifest.json is damaged: more: "):
        checkpoint.peek(folder)
