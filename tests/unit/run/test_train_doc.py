"""docs/train.md says what is there: every setting with its default, and programs that run."""

import re
import tomllib
from pathlib import Path

import pytest

from hotrow.run.config import DenseSection, RunConfig, RunSection
from hotrow.trainer import Schedule
from small_run import clicks

TEXT = (Path(__file__).parents[3] / "docs" / "train.md").read_text()
ROWS = {name: default.strip() for name, default in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", TEXT, re.M)}
WORDS = {"name": "the file's name", "threads": "torch's", "torch_threads": "torch's", "schedule": "`{}`"}
WORDS |= {"mode": '`"sync"`', "engine": '`"local"`'}


def as_written(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


@pytest.mark.parametrize("section", [RunSection, Schedule])
def test_every_setting_stands_there_with_its_default(section: type[RunSection | Schedule]) -> None:
    for name, field in section.model_fields.items():
        assert ROWS.get(name) == WORDS.get(name, as_written(field.default)), name


def test_the_dense_settings_stand_there_too() -> None:
    dense = DenseSection()
    assert tomllib.loads(f"optimizer = {ROWS['optimizer'].strip('`')}")["optimizer"] == {
        "name": dense.optimizer.name, **dense.optimizer.settings}  # fmt: skip
    assert (ROWS["clip"], dense.clip) == ("none", None)
    assert (ROWS["swap"], dense.swap) == ("none", None)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


def test_its_configs_are_configs() -> None:
    whole, own = map(tomllib.loads, blocks("toml"))
    assert RunConfig(**whole).model.name == "deepfm"
    assert RunConfig(**{**whole, **own}).model.settings == {"hidden": 64}


def test_its_programs_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{y},{user},{item},{price}" for y, user, item, price in clicks(2000, seed=1)[0]]
    for name in ("clicks.csv", "new.csv"):
        Path(name).write_text("\n".join(["clicked,user,item,price", *lines]) + "\n")
    Path("mine").mkdir()
    own_model, *programs = blocks("python")
    Path("mine/own.py").write_text(own_model)
    config, own = blocks("toml")
    text = f'{config.split("[model]")[0]}\n{own}\n[tables.default]\ndim = 4\n[run]\nautocast = "off"\n'
    Path("mine/train.toml").write_text(text.replace('"clicks.csv"', '"../clicks.csv"'))
    names: dict[str, object] = {"__name__": "doc"}
    for number, program in enumerate(programs):
        exec(compile(program, f"program {number}", "exec"), names)
    assert Path("runs/train/report.html").exists()
    assert Path("checkpoint/000001/manifest.json").exists()
