"""docs/simulate.md says what is there: every setting with its default, files that are simulations, all presets."""

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from hotrow.sim.study.config import SimulationConfig, check_whole
from hotrow.sim.study.file import preset_names
from hotrow.sim.study.sections import Contender, Pictured, SimulationRun
from simulations import outcomes

TEXT = (Path(__file__).parents[3] / "docs" / "simulate.md").read_text()
SECTIONS: dict[str, type[BaseModel]] = {
    "### `[modes.LABEL]`": Contender,
    "### `[run]`": SimulationRun,
    "### `[picture]`": Pictured,
}
FILES = [tomllib.loads(text) for text in re.findall(r"^```toml\n(.*?)^```", TEXT, re.M | re.S)]


def as_written(value: object) -> str:
    return "none" if value is None else f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


@pytest.mark.parametrize("title", SECTIONS)
def test_every_setting_stands_there_with_its_default(title: str) -> None:
    section = SECTIONS[title]
    part = TEXT.split(title)[1].split("\n#")[0]
    rows = {name: default.strip() for name, default in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", part, re.M)}
    for name, field in section.model_fields.items():
        if name != "mode":
            assert rows.get(name) == as_written(field.default), name


@pytest.mark.parametrize("number", range(len(FILES)))
def test_its_files_are_simulations_that_run(number: int) -> None:
    made = check_whole(SimulationConfig(**FILES[number]))
    smaller = made.model_copy(update={"run": made.run.model_copy(update={"samples": 4000})})
    found = outcomes(smaller)
    assert list(found) == list(made.modes)
    assert all(each.result.samples_applied == 4000 for each in found.values())


def test_every_preset_is_named() -> None:
    part = TEXT.split("## Presets")[1].split("global QPS")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", part, re.M)) == preset_names()
