"""A config file gives the same run again, from wherever it is read, and every fault is a sentence."""

import json
from pathlib import Path

import pytest

from hotrow.data.config import DataConfig
from hotrow.data.settings import schema_of
from hotrow.errors import ConfigError
from hotrow.run import RunConfig, load_config
from hotrow.run.build import tables_of
from hotrow.run.config import RunSection, as_toml
from small_run import CONFIG, write_data


def written(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def files_of(config: RunConfig) -> DataConfig:
    assert isinstance(config.data, DataConfig)
    return config.data


FULL = (
    CONFIG.replace('test = "test.csv"', 'split = { by = "time", test = 2024-03-01 }\ntime = "price in €"')
    .replace('"adagrad", lr = 0.3', '"adam", beta2 = 0.97, l2 = 0.2')
    .replace("[run]", '[run]\nearly_stopping = { metric = "logloss" }\nschedule = { plateau = 0.1 }\nseed = 4')
)


@pytest.mark.parametrize("text", [CONFIG, FULL])
def test_a_saved_config_gives_the_same_run_again(text: str, tmp_path: Path) -> None:
    config = load_config(written(tmp_path, text))
    elsewhere = tmp_path / "runs"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text(as_toml(config), encoding="utf-8")
    again = load_config(elsewhere / "config.toml")
    assert again == config
    assert as_toml(again) == as_toml(config)


def test_a_table_without_a_seed_takes_the_run_s_also_when_the_saved_config_is_read(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, CONFIG), ["run.seed=4"])
    (tmp_path / "config.toml").write_text(as_toml(config), encoding="utf-8")
    again = load_config(tmp_path / "config.toml")
    assert "seed" not in again.tables["default"].model_fields_set
    own = load_config(written(tmp_path, CONFIG), ["tables.default.seed=0"])
    (tmp_path / "config.toml").write_text(as_toml(own), encoding="utf-8")
    assert "seed" in load_config(tmp_path / "config.toml").tables["default"].model_fields_set


def test_paths_start_at_the_folder_of_the_file_and_uris_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, CONFIG.replace('"test.csv"', '["a/*.csv", "/b.csv", "s3://c/d.csv"]'))
    monkeypatch.chdir(tmp_path.parent)
    config = load_config(Path(tmp_path.name) / "small.toml", ["model.name=own.py:Mine", "data.format=csv"])
    assert files_of(config).train == (str(tmp_path / "train.csv"),)
    assert files_of(config).test == (str(tmp_path / "a/*.csv"), "/b.csv", "s3://c/d.csv")
    assert config.model.name == f"{tmp_path / 'own.py'}:Mine"
    assert load_config(tmp_path / "small.toml", ["model.name=package.module:Mine"]).model.name == "package.module:Mine"


def test_a_home_folder_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    config = load_config(written(tmp_path, CONFIG.replace('"train.csv"', '"~/clicks.csv"')))
    assert files_of(config).train == ("/home/somebody/clicks.csv",)


def test_a_run_is_named_after_its_file_unless_it_has_a_name(tmp_path: Path) -> None:
    path = written(tmp_path, CONFIG)
    assert load_config(path).run.name == "small"
    assert load_config(path, ["run.name=other"]).run.name == "other"
    odd = path.rename(tmp_path / "mein lauf.toml")
    assert load_config(odd).run.name == "run"


CHANGES = {
    "a number": ("run.epochs=5", lambda config: config.run.epochs == 5),
    "a text without quotes": ("data.train=day 1.csv", lambda config: config.data.train[0].endswith("/day 1.csv")),
    "a text with quotes": ('model.name="fm"', lambda config: config.model.name == "fm"),
    "a list": ('data.ids=["a"]', lambda config: [each.name for each in config.data.ids] == ["a"]),
    "a table": ("run.early_stopping={patience=4}", lambda config: config.run.early_stopping.patience == 4),
    "a new section": ("tables.users.dim=2", lambda config: config.tables["users"].dim == 2),
    "a setting of the model": ("model.hidden=[3]", lambda config: config.model.settings == {"hidden": [3]}),
    "a whole section": ("model=dnn", lambda config: config.model.name == "dnn"),
    "an equals sign inside": ("data.train=a=b.csv", lambda config: config.data.train[0].endswith("/a=b.csv")),
}


@pytest.mark.parametrize(("change", "promise"), CHANGES.values(), ids=CHANGES)
def test_a_change_replaces_what_the_file_says(change: str, promise: object, tmp_path: Path) -> None:
    assert callable(promise)
    assert promise(load_config(written(tmp_path, CONFIG), [change]))


FAULTS = {
    "no file": (None, (), "there is no such file; `hotrow new DIR` writes one"),
    "no TOML": (CONFIG.replace("dim = 1", "dim = = 1"), (), "invalid TOML: Invalid value (at line 13, column 7)"),
    "an unknown section": (f"{CONFIG}\n[modle]", (), "modle={}: there is no such setting; did you mean model?"),
    "a number in quotes": (CONFIG, ("run.global_batch='9'",), "'9': must be a whole number, write it without quotes"),
    "a word for a number": (CONFIG, ("run.global_batch='x'",), "run.global_batch='x': must be a whole number"),
    "an unknown field": (CONFIG, ("run.epoch=3",), "run.epoch=3: there is no such setting; did you mean epochs?"),
    "nothing like it": (CONFIG, ("dense.qqq=3",), "dense.qqq=3: there is no such setting; there are: optimizer, swap,"),
    "deep down": (CONFIG, ("data.ids=[{colum='a'}]",), "data.ids.0.colum='a': there is no such setting; did you mean"),
    "in a table": (CONFIG, ("tables.default.dim=0",), "tables.default.dim=0: Input should be greater than 0"),
    "in an optimizer": (
        CONFIG, ("tables.default.optimizer.lr=-1",), "tables.default.optimizer.adagrad.lr=-1: Input should be greater"),
    "no such optimizer": (CONFIG, ("tables.default.optimizer={name='adagard'}",), "must be one of 'sgd', 'adagrad'"),
    "a missing field": (CONFIG.replace("dim = 1", ""), (), "tables.default.dim is missing: give it a value"),
    "no tables": (CONFIG, ("tables={}",), "give at least [tables.default] with a dim"),
    "a section that is none": (CONFIG, ("run=3",), "run=3: give one of hotrow's settings for it"),
    "a name for no folder": (CONFIG, ("run.name=a/b",), "run.name='a/b': is the name of a folder: use 1 to 64"),
    "no epochs": (CONFIG, ("run.epochs=0",), "run.epochs=0: Input should be greater than or equal to 1"),
    "a truth for a number": (CONFIG, ("run.epochs=true",), "run.epochs=True: must be a whole number"),
    "two faults": (CONFIG, ("run.epochs=0", "run.seed=-1"), "Input should be greater than or equal to 1; run.seed=-1"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "changes", "told"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_with_file_field_value_and_remedy(
    text: str | None, changes: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "small.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, changes)
    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("run.epochs", "--set run.epochs: write it as section.field=value, as --set run.epochs=3"),
        ("=3", "--set =3: write it as section.field=value"),
        ("run..epochs=3", "--set run..epochs=3: write it as section.field=value"),
        ("data.train.path=3", "--set data.train.path=3: train is a value, it has no fields: set it whole"),
    ],
)
def test_a_change_that_cannot_be_is_told(change: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, CONFIG), [change])
    assert str(caught.value).startswith(told)


def test_a_table_that_no_feature_names_is_told(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, CONFIG), ["tables.users.dim=2"])
    with pytest.raises(ConfigError, match=r"tables\.users: no feature names this table, they name default"):
        tables_of(schema_of(files_of(config)), config.tables)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp", "-rf", "a\x1b[2J", "a\nb", "a b", "x" * 65])
def test_a_run_s_name_is_that_of_a_folder_of_its_own(name: str, tmp_path: Path) -> None:
    """With "." or nothing a run would write among the folders of all runs, with ".." beside them."""
    path = write_data(tmp_path)
    with pytest.raises(ConfigError, match=r"run\.name=.*is the name of a folder: use 1 to 64 .* no '-' in front"):
        load_config(path, [f"run.name={json.dumps(name)}"])
    with pytest.raises(ConfigError, match=r"name=.*is the name of a folder"):
        RunSection(name=name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["small.toml", "test.csv", "train.csv"]


@pytest.mark.parametrize("name", ["x", "a.b", ".hidden", "...", "2024-03-01_run", "x" * 64])
def test_names_that_are_odd_and_no_harm_are_taken(name: str, tmp_path: Path) -> None:
    assert load_config(write_data(tmp_path), [f"run.name={json.dumps(name)}"]).run.name == name
    assert RunSection().name == "run"


def test_the_directory_of_rows_on_disk_starts_at_the_folder_of_the_config(tmp_path: Path) -> None:
    config = write_data(tmp_path, CONFIG.replace("dim = 1\n", 'dim = 1\ncapacity = 100\ndisk = "4MB"\npath = "rows"\n'))
    assert load_config(config).tables["default"].path == tmp_path.resolve() / "rows"
    whole = load_config(config, ("tables.default.path=/elsewhere",))
    assert whole.tables["default"].path == Path("/elsewhere")
