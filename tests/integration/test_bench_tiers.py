"""`hotrow bench tiers` runs from end to end at small sizes, and what it writes is whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.bench.peers import EPS, load_adapters
from hotrow.bench.tiers.plan import PARTS
from hotrow.bench.tiers.report import PEERS, SPEED, merged
from hotrow.errors import ConfigError
from hotrow.store import RamTier

TWIN = Path(__file__).with_name("twin_peer.py")
ROCKS = Path(__file__).parents[2] / "benchmarks/peers/rocksdb_peer.py"
HOTROW = str(Path(sys.executable).with_name("hotrow"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [HOTROW, "bench", "tiers", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.ray
def test_the_command_writes_every_figure_also_those_of_a_peer_and_leaves_no_file(tmp_path: Path) -> None:
    out, picture, folder = tmp_path / "tiers.json", tmp_path / "tiers.svg", tmp_path / "disk"
    folder.mkdir()
    files = ["--folder", str(folder), "--json", str(out), "--picture", str(picture)]
    done = run("--quick", "--peer", str(TWIN), *files)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert list(found) == list(PARTS)
    for part in PARTS:
        assert found[part]["command"].startswith("hotrow bench tiers --quick")
        assert found[part]["job"]["rows"] == 20_000
    speed, capacity = found["speed"], found["capacity"]
    for key in [key for key, _, _ in SPEED] + [key.format(name="twin") for key, _, _ in PEERS]:
        assert speed[f"d4_{key}"] is not None
    assert speed["d4_rows"] == 20_000
    assert speed["d4_disk_rows"] == 18_000
    assert 0 < speed["d4_ram_hit_share"] <= 1  # rows of two steps may all have come before the clock starts
    assert speed["d4_moved_up_per_step"] >= 0
    assert found["options"]["ahead_gain"] > 0
    assert found["options"]["binding_gain"] > 0
    bound = found["options"]["bound_threads"]
    assert ("one NUMA node: core binding binds nothing" in done.stdout) is (bound == 0)
    assert 0 < capacity["capacity_flatness"] <= capacity["spaces_flatness"] <= 1
    assert capacity["rows"] >= 6_000
    assert picture.read_text().count("<rect") == 1 + 2 + 2
    assert list(folder.iterdir()) == []


def test_parts_measured_earlier_stay_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "tiers.json"
    out.write_text(json.dumps({"options": {"old": 1}, "speed": {"old": 2}}))
    both = merged(out, {"capacity": {"new": 3}, "speed": {"new": 4}})
    assert both == {"speed": {"new": 4}, "options": {"old": 1}, "capacity": {"new": 3}}
    assert list(both) == [part for part in PARTS if part in both]
    assert merged(tmp_path / "none.json", {"speed": {}}) == {"speed": {}}


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ('{"step_mids": 1}', "another benchmark")])
def test_a_file_of_another_benchmark_is_refused_before_anything_is_measured(
    tmp_path: Path, text: str, message: str
) -> None:
    out = tmp_path / "store.json"
    out.write_text(text)
    with pytest.raises(ConfigError, match=message):
        merged(out, {})
    assert out.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "hbm"], "--part hbm: must be of speed, options, cluster, capacity"),
        (["--part", "speed", "--picture", "x.svg"], "shows the part capacity"),
        (["--folder", "none"], "there is no such folder, make it first"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_measured(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_rocksdb_trains_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    from rocksdb_peer import RocksPeer, _texts

    (adapter,) = load_adapters([ROCKS], "tiers")
    assert adapter.name == "rocksdb"
    random = np.random.default_rng(0)
    tier = RamTier(hr.Table(dim=3, optimizer=hr.Adagrad(lr=0.1, eps=EPS)))
    keys = np.arange(500)
    tier.find_or_init(keys)
    peer = RocksPeer(tmp_path / "db", 3, memory_bytes=8 << 20, lr=0.1, depth=4)
    first = tier.whole_rows(keys)
    peer.fill(first.keys, first.values, first.state)
    peer.settle()
    for step in range(3):
        batch, gradients = random.integers(0, 500, 400), random.normal(size=(400, 3)).astype(np.float32)
        tier.apply(tier.find_or_init(batch), gradients, step=step)
        peer.step(batch, gradients)
    last = tier.whole_rows(keys)
    assert np.abs(last.values - first.values).max() > 0.01
    found = peer.read(_texts(last.keys))
    np.testing.assert_allclose(found, np.concatenate([last.values, last.state], axis=1), rtol=1e-5, atol=1e-6)
    peer.close()
    assert not (tmp_path / "db").exists()
