"""README.md: its program trains, and its figures are those of the recorded results."""

import json
import re
import runpy
from pathlib import Path

import pytest

from small_run import clicks

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()


def recorded(name: str) -> dict[str, float]:
    found: dict[str, float] = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    return found


def test_its_program_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{y},{user},{item}" for y, user, item, _ in clicks(2000, seed=1)[0]]
    Path("clicks.csv").write_text("\n".join(["clicked,user,item", *lines]) + "\n")
    program = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)[0]
    exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    assert "TrainingEnded(samples=2000" in capsys.readouterr().out


def test_its_picture_is_drawn_from_the_recorded_results() -> None:
    drawing = runpy.run_path(str(ROOT / "benchmarks" / "picture.py"))
    figures = recorded("store.json")
    drawn = drawing["picture"](figures, figures["machine"]["cpu"].replace("(R)", ""))  # type: ignore[index]
    assert (ROOT / "docs" / "speed.svg").read_text() == drawn, "run: python benchmarks/picture.py"


def test_its_ratios_are_the_recorded_ones() -> None:
    train, peers = recorded("train.json"), recorded("cluster_peers.json")
    torch = [train[f"{network}_d{dim}_vs_torch"] for network in ("narrow", "wide") for dim in (16, 64)]
    torchrec = [peers[f"{network}_d16_vs_torchrec"] for network in ("narrow", "wide")]
    assert f"{min(torch):.2f} to {max(torch):.2f} times as fast as with" in TEXT
    assert f"{min(torchrec):.2f} to {max(torchrec):.2f} times as fast as TorchRec" in TEXT
