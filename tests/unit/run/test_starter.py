"""The starter config works as it stands once its files are there, and everything it shows as a comment works too."""

import re
from pathlib import Path

import pytest

from hotrow.errors import ConfigError
from hotrow.run import RunConfig, load_config
from hotrow.run.build import trainer_of
from hotrow.run.starter import NAME, starter_text, write_starter

SETTING = re.compile(r"^# (\w+ = .*)$", re.M)


def shown() -> list[str]:
    return SETTING.findall(starter_text())


def test_a_starter_is_a_whole_config(tmp_path: Path) -> None:
    config = load_config(write_starter(tmp_path / "deep" / "down"))
    assert config.run.name == "down", "the run has the name of the folder"
    assert config.model.name == "deepfm"


def test_a_folder_whose_name_no_run_can_have_leaves_the_name_to_the_file(tmp_path: Path) -> None:
    assert load_config(write_starter(tmp_path / "my clicks")).run.name == "train"


def test_its_model_and_tables_can_be_built(tmp_path: Path) -> None:
    from hotrow.data.settings import DataConfig, schema_of

    config = load_config(write_starter(tmp_path))
    assert isinstance(config.data, DataConfig)
    trainer_of(config, schema_of(config.data)).close()


@pytest.mark.parametrize("line", shown())
def test_every_setting_that_is_shown_can_be_used(line: str, tmp_path: Path) -> None:
    text = starter_text()
    if line.startswith(("valid", "test")):  # as the comment above them says
        text = re.sub("^split = .*$", "", text, flags=re.M)
    if line.startswith("eviction"):
        text = text.replace("# capacity", "capacity")
    path = tmp_path / NAME
    path.write_text(text.replace(f"# {line}", line))
    plain = tmp_path / "plain.toml"
    plain.write_text(text)
    assert load_config(path) != load_config(plain, ["run.name=train"])


def test_the_settings_that_people_ask_for_are_shown() -> None:
    fields = {line.partition(" ")[0] for line in shown()} | set(re.findall(r"^(\w+) = ", starter_text(), re.M))
    run = set(RunConfig.model_fields["run"].default.model_dump())
    assert run - fields == {"engine", "not_finite", "progressive", "replay"}  # explained in docs/train.md
    assert {"format", "train", "valid", "test", "split", "label", "ids", "numbers", "time", "group"} <= fields


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = write_starter(tmp_path)
    path.write_text("mine")
    with pytest.raises(ConfigError, match=r"train\.toml: exists: name another folder"):
        write_starter(tmp_path)
    assert path.read_text() == "mine"
    with pytest.raises(ConfigError, match="is a file: name a folder"):
        write_starter(path)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_starter(Path("/proc/self/nothing"))
