"""docs/checkpoints.md: its programs run, its table names the fields of a manifest, and versions are the ones read."""

import re
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import hotrow as hr
from hotrow import checkpoint
from hotrow.checkpoint.manifest import VERSION, Manifest
from hotrow.checkpoint.saving import Saved
from hotrow.store import RamTier

PAGE = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
PROGRAMS = [each for each in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S) if "import" in each]


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_that_read_a_checkpoint_run(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tier = RamTier(hr.Table(dim=3))
    tier.find_or_init(np.arange(9))
    checkpoint.save("checkpoint", nn.Linear(1, 1), None, {"default": tier}, Saved({}, None, {}))
    exec(compile(program, "checkpoints.md", "exec"), {"__name__": "doc"})
    assert "9" in capsys.readouterr().out


def test_the_table_of_the_manifest_has_all_its_fields() -> None:
    lines = PAGE.split("| `manifest.json` | |\n")[1].split("\n\n")[0].splitlines()[1:]
    named = [name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert named == list(Manifest.model_fields)
    assert f'"hotrow checkpoint", {VERSION}' in lines[0]
