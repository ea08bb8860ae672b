"""The scripts in benchmarks/ run as they stand, on a slice of their job."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A script as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_row_types_prints_a_line_for_each_type_and_keeps_every_auc(tmp_path: Path) -> None:
    kept = tmp_path / "row_types.json"
    done = run("row_types.py", "--samples", "16000", "--test-samples", "5000", "--seeds", "2", "--json", str(kept))
    assert done.returncode == 0, done.stderr
    _, _, *lines = done.stdout.splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["| float32", "| float16", "| bfloat16"]
    result = json.loads(kept.read_text())
    aucs = {(line["seed"], line["type"]): line["auc"] for line in result["runs"]}
    assert len(aucs) == 6
    for seed in (0, 1):  # paired: the types differ by their rounding only
        assert aucs[seed, "float16"] == pytest.approx(aucs[seed, "float32"], abs=0.01)
        assert aucs[seed, "bfloat16"] == pytest.approx(aucs[seed, "float32"], abs=0.01)
    assert len(set(aucs.values())) == 6  # and rounding there was
    assert result["command"].startswith("python benchmarks/row_types.py --samples 16000")


def test_row_types_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    done = run("row_types.py", "--json", str(tmp_path / "nowhere" / "row_types.json"))
    assert done.returncode == 2
    assert "make it first" in done.stderr


@pytest.mark.slow
def test_accuracy_runs_its_jobs_and_says_what_was_reached(tmp_path: Path, data_dir: Callable[[str], Path]) -> None:
    data_dir("movielens_100k")
    kept = tmp_path / "accuracy.json"
    done = run("accuracy.py", "--only", "movielens one pass", "--seeds", "1", "--json", str(kept))
    assert done.returncode == 0, done.stderr
    found = json.loads(kept.read_text())["results"]["movielens one pass"]
    assert found["reached"] == (found["auc"] >= 0.71)
    assert 0.7 < found["auc"] < 0.75
    assert ("reached" if found["reached"] else "MISSED") in done.stdout


def test_accuracy_needs_to_know_where_the_samples_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOTROW_DATA", raising=False)
    done = run("accuracy.py", "--only", "criteo lr")
    assert done.returncode == 1
    assert "HOTROW_DATA is not set" in done.stderr


SIZES = {"steps": 3, "samples": 8, "large": 8, "large-steps": 2, "ids": 20, "dim": 4, "hidden": 4, "hbm": 1024}
SMALL = ["--interpret", *(f"--{name}={size}" for name, size in SIZES.items())]
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


def test_gpu_training_compares_losses_and_keeps_the_counts_of_each_device(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")
    kept = tmp_path / "gpu_training.json"
    done = run("gpu_training.py", *SMALL, "--json", str(kept), TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    found = json.loads(kept.read_text())
    assert found["same"]
    assert found["largest_difference"] <= 1e-4
    assert found["cuda_gpu_capacity.default"] == 1024
    assert {"cuda_refused_gradients", "cpu_refused_gradients"} <= set(found)
    assert found["command"].startswith("python benchmarks/gpu_training.py --interpret --steps=3")
    assert {"commit", "date", "machine", "versions"} <= set(found)


def test_losses_of_gpu_training_are_kept_where_taking_times_fails(
    script: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, kept = script("gpu_training"), tmp_path / "gpu_training.json"

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(training, "compare", lambda given, found: found.update(same=True))
    monkeypatch.setattr(training, "time_both", fail)
    monkeypatch.setattr(sys, "argv", ["gpu_training.py", *SMALL, "--json", str(kept)])
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(MemoryError):
        training.main()
    assert json.loads(kept.read_text())["same"] is True


def test_gpu_training_exits_with_1_where_losses_differ(
    script: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    training = script("gpu_training")
    monkeypatch.setattr(training, "measure", lambda _: {"same": False, "largest_difference": 0.25})
    monkeypatch.setattr(sys, "argv", ["gpu_training.py", *SMALL])
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(SystemExit, match=r"losses differ by 0\.25 from those on the CPU, more than 0\.0001"):
        training.main()


@no_gpu
@pytest.mark.parametrize(
    ("arguments", "interpreter", "message"),
    [
        ([], "0", "no GPU here"),
        (["--interpret"], "0", "--interpret: set TRITON_INTERPRET=1"),
        (["--interpret", "--hbm", "5"], "1", "hbm=5: must be 128 rows"),
        (["--interpret", "--large-steps", "1"], "1", "--large-steps: 1: must be a whole number, 2 or more"),
        (["--interpret", "--json", "missing/x.json"], "1", "there is no folder missing; make it first"),
    ],
)
def test_gpu_training_refuses_what_it_cannot_do(
    arguments: list[str],
    interpreter: str,
    message: str,
    script: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_training.py", *arguments])
    monkeypatch.setenv("TRITON_INTERPRET", interpreter)
    with pytest.raises(SystemExit) as ended:
        script("gpu_training").main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


class KnownRuns:
    """A workload whose runs with one kind of cache have other losses. "none" stands for a GPU without a cache."""

    steps, samples, dim = 3, 8, 4

    def __init__(self, trainer: Any, wrong: str | None, in_gpu_memory: bool = True) -> None:
        self._trainer, self._wrong, self._in_gpu_memory = trainer, wrong, in_gpu_memory

    def trained(self, device: str, mode: Any, hidden: list[int], cache: Any = None) -> Any:
        kind = "none" if cache is None else "host" if cache.memory == "host" else "gpu"
        loss = 0.6 if device == "cuda" and kind == self._wrong else 0.5
        figures = {"bytes_sent": 1.0, "bytes_received": 1.0}
        if cache is not None:
            figures |= {f"cache_{name}.default": 1.0 for name in ("hits", "misses", "awaited", "ahead")}
        if kind == "gpu" and self._in_gpu_memory:
            figures |= {"cache_to_device.default": 1.0, "cache_from_device.default": 1.0}
        return self._trainer.Trained([loss] * self.steps, 1.0, figures)


@pytest.mark.parametrize("wrong", ["none", "host", "gpu", None])
def test_gpu_trainer_compares_each_kind_of_cache_with_a_run_on_the_cpu(
    wrong: str | None, script: Callable[[str], Any]
) -> None:
    trainer, found = script("gpu_trainer"), dict[str, Any]()
    trainer.caches(KnownRuns(trainer, wrong), ["cpu", "cuda"], found, 100, 10)
    assert {name for name in found if name.endswith("_same")} == {
        f"cache_{kind}_same" for kind in ("none", "host", "gpu")
    }
    assert trainer.different(found) == ([] if wrong is None else [f"cache_{wrong}"])
    assert found["cache_gpu_hit_share"] == 0.25


def test_gpu_trainer_ends_where_cached_rows_are_not_in_gpu_memory(script: Callable[[str], Any]) -> None:
    trainer = script("gpu_trainer")
    work = KnownRuns(trainer, None, in_gpu_memory=False)
    with pytest.raises(SystemExit, match="the cached rows are not in GPU memory"):
        trainer.caches(work, ["cpu", "cuda"], {}, 100, 10)


@pytest.mark.slow
@no_gpu
def test_gpu_trainer_measures_caches_on_the_cpu_alone_and_says_so(tmp_path: Path) -> None:
    kept = tmp_path / "gpu_trainer.json"
    small = ("--steps", "6", "--samples", "64", "--ids", "100", "--capacity", "500")
    done = run("gpu_trainer.py", "--part", "caches", *small, "--json", str(kept))
    assert done.returncode == 0, done.stderr
    assert "no GPU here: the CPU alone is measured" in done.stderr
    found = json.loads(kept.read_text())
    assert found["cache_host_same"]
    assert 0 < found["cache_host_hit_share"] < 1
    assert "cache_none_same" not in found


def test_both_gpu_scripts_train_on_one_zipf_stream(script: Callable[[str], Any]) -> None:
    stream = script("zipf_batches")
    (batch,) = stream.zipf_batches(1, 2_000, 50)
    keys = batch.parts[0].keys.reshape(-1, stream.FEATURES)
    assert (keys % stream.FEATURES == np.arange(stream.FEATURES)).all()
    weights = np.arange(1, 51) ** -stream.ZIPF
    shares = np.bincount(keys.reshape(-1) // stream.FEATURES, minlength=50) / keys.size
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.01)
    ((lease, leased),) = script("trainer_processes").leases(1, 2_000, 50)
    assert lease.samples == 2_000
    assert (leased.parts[0].keys == batch.parts[0].keys).all()
