"""What `hotrow bench cluster` refuses before it starts anything, and what of a stretch it times."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotrow.bench.cluster import stretches, talk_rings
from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.cluster.straggler import Paced
from hotrow.bench.rounds import Contestant, SilentProgress
from hotrow.bench.train import write_file
from hotrow.cli import app
from hotrow.errors import ConfigError
from hotrow.modes import Hybrid, Sync
from hotrow.runtime.settings import Local

PLAN = replace(ClusterPlan().quick(), rows=500, samples=32, steps=5, skipped=2, tail=1, rounds=1)


def refused(*options: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "cluster", *options])
    assert done.exit_code == 2
    return done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--part", "speed"), "--part speed: must be of shared-memory, same, auc"),
        (("--criteo", "nowhere.tsv"), "--criteo nowhere.tsv: there is no such file"),
        (("--steps", "12"), "steps=12: the first 8 and the last 4 are not timed: take more"),
        (("--part", "peers"), "--part peers: there is no peer, name its adapter by --peer FILE"),
        (("--json", "nowhere/a.json"), "does not exist"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_at_once(options: tuple[str, ...], said: str) -> None:
    assert said in refused(*options).replace("\n", " ")


def test_one_step_more_than_is_skipped_can_be_timed() -> None:
    replace(PLAN, steps=PLAN.skipped + PLAN.tail + 1).check_steps()
    with pytest.raises(ConfigError, match="take more"):
        replace(PLAN, steps=PLAN.skipped + PLAN.tail).check_steps()


def test_a_table_is_filled_and_a_stretch_is_timed_after_its_first_steps(tmp_path: Path) -> None:
    source = write_file(PLAN.train, tmp_path / "f.parquet", SilentProgress())
    with closing(stretches.trainer_of(PLAN, (8,), Local())) as trainer:
        assert len(trainer.tables.tiers["default"]) == PLAN.rows
        contestants: dict[str, Contestant] = {
            mode.name: stretches.contestant(PLAN, source, trainer, mode) for mode in (Sync(), Hybrid(max_in_flight=2))
        }
        seconds = stretches.race(PLAN, contestants, "two modes", SilentProgress())
        assert {name: len(each) for name, each in seconds.items()} == {"sync": 1, "hybrid": 1}
        assert all(each.min() > 0 for each in seconds.values())
        assert trainer.samples == 2 * (PLAN.rounds + stretches.WARM_UP) * PLAN.train.segment


def test_only_the_process_that_is_told_so_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("hotrow.bench.cluster.straggler.time.sleep", slept.append)
    source = write_file(PLAN.train, tmp_path / "f.parquet", SilentProgress())
    with closing(
        stretches.trainer_of(PLAN, (8,), Local(), wrapped=lambda network: Paced(network, tmp_path))
    ) as trainer:
        part = stretches.part_of(PLAN, source, 0)
        stretches.stretch(PLAN, trainer, part)
        (tmp_path / str(os.getpid())).write_text("0.25")
        stretches.stretch(PLAN, trainer, part)
    assert set(slept[: len(slept) // 2]) == {0.0}
    assert set(slept[len(slept) // 2 :]) == {0.25}


def test_shared_memory_is_measured_beside_tcp() -> None:
    found = talk_rings.measure(PLAN, SilentProgress())
    assert set(found) >= {"shm_vs_tcp", "shm_read_vs_tcp", "shm_small_vs_tcp", "shm_gibps", "tcp_gibps"}
    sizes = {name for name in talk_rings.SIZES if f"shm_{name}_vs_tcp" in found}
    assert sizes == {name for name, size in talk_rings.SIZES.items() if size < PLAN.large_bytes} != set()
    assert all(value is not None and 0 < value < float("inf") for value in found.values())
