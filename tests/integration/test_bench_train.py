"""`hotrow bench train` runs from end to end at small sizes, and what it writes is whole."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from hotrow.bench.network import NetworkAlone
from hotrow.bench.peers import EPS, TrainingPeer
from hotrow.bench.rounds import SilentProgress
from hotrow.bench.torch_peers import TorchByHand, TorchTrained
from hotrow.bench.train import HotrowTraining, StartedLoader, write_file
from hotrow.bench.train_plan import TrainPlan
from hotrow.data.loader import Loader
from hotrow.errors import ConfigError
from hotrow.optim.sparse import Adagrad, RowwiseAdagrad
from hotrow.store import RamTier

TWIN = Path(__file__).with_name("twin_peer.py")
PLAN = TrainPlan(rows=2000, dims=(4,), rounds=1, steps=2, samples=64, features=3, numbers=2)
KEYS = (
    "vs_torch",
    "network_share",
    "inline_ms",
    "ahead_ms",
    "embedding_share",
    "rowwise_vs_best",
    "samples_per_s",
    "vs_twin",
    "twin_ms",
    "twin_rowwise_ms",
)


def test_the_command_writes_every_figure_also_those_of_a_peer(tmp_path: Path) -> None:
    out = tmp_path / "train.json"
    hotrow = str(Path(sys.executable).with_name("hotrow"))
    command = [hotrow, "bench", "train", "--quick", "--network", "narrow", "--dim", "4", "--json", str(out)]
    command += ["--peer", str(TWIN)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    for key in KEYS:
        assert found[f"narrow_d4_{key}"] is not None
    assert found["reader_rows_per_s"] > 0
    assert found["command"].startswith("hotrow bench train --quick")
    assert found["versions"]["twin"] == found["versions"]["torch"]
    assert "outside the network" in done.stdout
    assert "times a twin, exact" in done.stdout


def test_all_contestants_train_the_same_model(tmp_path: Path) -> None:
    """After the same batches the network's weights agree: exact Adagrad with torch's, row-wise with the one by hand."""
    source = write_file(PLAN, tmp_path / "f.parquet", SilentProgress())
    hidden = (8,)
    for ours_by, peer_type in ((Adagrad, TorchTrained), (RowwiseAdagrad, TorchByHand)):
        ours = HotrowTraining(PLAN, 4, hidden, ours_by(lr=PLAN.lr, eps=EPS))
        tier = ours.trainer.tables.tiers["default"]
        assert isinstance(tier, RamTier)
        first = np.empty((PLAN.rows, 4), np.float32)
        tier.find(np.arange(PLAN.rows), first)
        peer: TrainingPeer = peer_type(PLAN, 4, hidden)
        weight = peer._bags.weight if isinstance(peer, TorchTrained) else peer._values  # type: ignore[attr-defined]
        with torch.no_grad():
            weight.copy_(torch.from_numpy(first))
        ours.segment(Loader(source, PLAN.samples))
        for _, batch in Loader(source, PLAN.samples):
            peer.step(batch)
        last = np.empty((PLAN.rows, 4), np.float32)
        tier.find(np.arange(PLAN.rows), last)
        assert np.abs(last - first).max() > 0.01
        np.testing.assert_allclose(last, weight.detach().numpy(), atol=1e-5)


def test_a_stretch_is_timed_from_its_first_batch_on_and_trained_whole(tmp_path: Path) -> None:
    source = write_file(PLAN, tmp_path / "f.parquet", SilentProgress())
    plain = [batch.parts[0].keys.tolist() for _, batch in Loader(source, PLAN.samples)]
    loader = StartedLoader(source, PLAN.samples)
    assert loader.waited_s > 0  # for the first batch, before anyone iterates
    assert [batch.parts[0].keys.tolist() for _, batch in loader] == plain
    before = threading.active_count()
    unread = StartedLoader(source, PLAN.samples)
    assert threading.active_count() > before
    unread.close()
    assert threading.active_count() == before


def test_the_network_alone_has_no_table(tmp_path: Path) -> None:
    source = write_file(PLAN, tmp_path / "f.parquet", SilentProgress())
    alone = NetworkAlone(PLAN, 4, (8,))
    before = alone._rows.detach().clone()
    _, batch = next(iter(Loader(source, PLAN.samples)))
    alone.repeat(batch, 2)
    assert torch.equal(before, alone._rows)


def test_the_file_holds_row_numbers_in_no_order(tmp_path: Path) -> None:
    source = write_file(PLAN, tmp_path / "f.parquet", SilentProgress())
    keys = np.concatenate([batch.parts[0].keys for _, batch in Loader(source, PLAN.samples)])
    assert keys.min() >= 0
    assert keys.max() < PLAN.rows
    values, counts = np.unique(keys, return_counts=True)
    frequent = values[np.argsort(-counts)[:20]]
    assert np.abs(np.diff(frequent)).mean() > PLAN.rows / 20


def test_a_job_too_large_for_the_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rows=1,000,000,000,000 at dim 4: ours and the peers need .* take fewer"):
        TrainPlan(rows=10**12, dims=(4,)).check_memory()
