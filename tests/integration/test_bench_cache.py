"""`hotrow bench cache` at tiny sizes, without clusters: every part writes its figures, and bad options are refused."""

import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hotrow.bench.cache.plan import CachePlan
from hotrow.cli import app

QUICK = CachePlan().quick()


def command(*options: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "HOTROW_DATA": ""}).invoke(app, ["bench", "cache", *options])


def test_the_command_writes_every_figure_of_the_parts_without_clusters(tmp_path: Path) -> None:
    out, drawn = tmp_path / "cache.json", tmp_path / "cache.svg"
    parts = ("--part", "bytes", "--part", "oracles", "--part", "policies", "--part", "hit")
    done = command("--quick", *parts, "--json", str(out), "--picture", str(drawn))
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    for key in (
        "bytes_saved_paper_skew",
        "bytes_saved_paper_skew_bound",
        "bytes_saved_zipf_1_05_ahead_s10",
        "bytes_saved_adagrad_zipf_1_05_lfu_s0",
        "saving_vs_oracle",
        "ahead_vs_oracle",
        "ahead_vs_belady",
        "miss_rate_lru_5pct",
        "miss_rate_ahead_50pct",
        "hit_rate_vs_local",
        "decision_share",
    ):
        assert math.isfinite(found[key]), key
    assert found["bytes_saved_paper_skew"] < found["bytes_saved_paper_skew_bound"] + 0.1
    assert 0 < found["decision_share"] < 1
    assert {cell["policy"] for cell in found["policies"]} == set(QUICK.policies)
    assert {cell["stream"] for cell in found["grid"]} == {"paper_skew", "paper_skew_grid", "zipf_1_05"}
    assert {"commit", "command", "machine"} <= set(found)
    assert str(tmp_path) not in json.dumps(found["job"])
    text = "".join(ElementTree.fromstring(drawn.read_text()).itertext())
    assert all(name in text for name in ("LRU", "light LFU", "ahead", "most popular ids"))
    assert "no cache: Sync, Hybrid" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--part", "speed"), "--part speed: must be of bytes, oracles, wire, policies, epoch, hit"),
        (("--data", "nowhere"), "--data nowhere: there is no such folder"),
        (("--part", "hit", "--picture", "a.svg"), "--picture a.svg: shows the miss rates of part policies"),
        (("--json", "nowhere/a.json"), "does not exist"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_at_once(options: tuple[str, ...], said: str) -> None:
    done = command(*options)
    assert done.exit_code == 2
    assert said in done.stderr.replace("\n", " ")
