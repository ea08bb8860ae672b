"""The [data] section: what may be said, and which sources come of it."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.data.config import DataConfig, open_data, open_source
from hotrow.data.parser import Dialect
from hotrow.data.schema import Bucket, Ids, Label, Log1p, Standard
from hotrow.data.settings import dialect_of, schema_of
from hotrow.data.source import Source
from hotrow.errors import ConfigError, InputError

CSV = {"train": "a.csv", "label": "y", "ids": ["a"]}


def config(**settings: Any) -> DataConfig:
    return DataConfig(**{**CSV, **settings})


def names(source: Source | None) -> list[str]:
    assert source is not None
    return [row["a"] for batch in source.read() for row in batch.to_pylist()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file, rows in {"a.csv": range(10), "b.csv": range(10, 13), "c.csv": range(20, 22)}.items():
        lines = "".join(f"{row % 2},r{row},{row},{row * 86_400}\n" for row in rows)
        (tmp_path / file).write_text("y,a,n,t\n" + lines)
    return tmp_path


def test_a_section_as_a_user_writes_it() -> None:
    section = tomllib.loads("""
        train = ["day_*.csv", "more.csv"]
        label = { column = "stars", at_least = 4 }
        numbers = ["age", { column = "price", transform = "log1p" }]
        ids = ["user", { column = "tags", separator = "|", pooling = "sum" }]
        time = "when"
        group = "user"
        missing = ["", "NA"]
        malformed = 50
        split = { by = "rows", train = 100, valid = 10 }
    """)
    made = DataConfig(**section)
    schema = schema_of(made)
    assert made.train == ("day_*.csv", "more.csv")
    assert made.malformed == 50
    assert schema.label == (Label(column="stars", at_least=4),)
    assert schema.numbers[1].transform == Log1p()
    assert schema.ids[1] == Ids(column="tags", separator="|", pooling="sum")
    assert schema.columns == ("stars", "age", "price", "user", "tags", "when")


def test_what_the_docs_show_is_taken() -> None:
    text = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    sections = [tomllib.loads(shown) for shown in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]
    assert len(sections) == 3
    for section in sections:
        config(**section.get("data", section))
    splits = re.findall(r"^\| `(\{ by = .*?\})` \|", text, re.MULTILINE)
    assert len(splits) == 4
    for shown in splits:
        assert config(time="t", **tomllib.loads(f"split = {shown}")).split is not None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"label": ["y", {"column": "z", "at_least": 1}], "malformed": 0, "delimiter": ";", "header": True},
        {"format": "criteo", "label": None, "ids": None, "transform": {"name": "bucket", "bounds": [1, 2]}},
        {"split": {"by": "fraction", "test": 0.1, "seed": 3}, "valid": ["v1.csv", "v2.csv"]},
        {"test": {"next": "day"}, "time": {"column": "t", "format": "ms"}},
    ],
)
def test_a_config_survives_being_written_down(settings: dict[str, Any]) -> None:
    made = config(**settings)
    assert DataConfig(**json.loads(json.dumps(made.model_dump(mode="json", exclude_none=True)))) == made


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"label": None}, "DataConfig.label=None: format csv needs it"),
        ({"format": "parquet", "label": None}, "label=None: format parquet needs it"),
        ({"ids": []}, "neither ids nor numbers"),
        ({"train": []}, "train"),
        ({"format": "taobao", "users": "u.csv"}, "ads=None: format taobao needs it"),
        ({"format": "parquet", "delimiter": ";"}, "delimiter=';': is a setting of format csv, not of parquet"),
        ({"transform": "log1p"}, "is a setting of format criteo, not of csv: leave it out"),
        ({"format": "avazu", "users": "u"}, "users='u': is a setting of format taobao and movielens, not of avazu"),
        ({"header": False}, "header=false: leaves the columns without names: give columns"),
        ({"delimiter": "::"}, "delimiter='::': one of several characters goes with no quote: set quote=''"),
        ({"encoding": "utf-16"}, "encoding='utf-16': must write ASCII as ASCII"),
        ({"malformed": -1}, "malformed=-1: must be a fraction from 0.0 to 1.0, or a whole number"),
        ({"malformed": 1.01}, "malformed=1.01: must be a fraction"),
        ({"malformed": True}, "malformed=True: must be a fraction of the rows, as 0.01"),
        ({"malformed": "1%"}, "malformed='1%': must be a fraction of the rows"),
        ({"shuffle": -1}, "shuffle=-1"),
        ({"sources": "x"}, "sources='x': there is no such setting"),
        ({"test": "t.csv", "split": {"by": "days"}}, "test names the data to test on too: leave one of them out"),
        ({"valid": "v.csv", "split": {"by": "fraction", "valid": 0.1}}, "valid names the data to validate on too"),
        ({"test": "t.csv", "split": {"by": "time", "test": "2020-01-01"}}, "test names the data to test on too"),
        ({"test": "t.csv", "split": {"by": "rows", "train": 5}}, "test names the data to test on too"),
    ],
)
def test_what_cannot_be_is_told(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**settings)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"malformed": 0},
        {"malformed": 0.0},
        {"malformed": 1.0},
        {"malformed": 10**9},
        {"test": "t.csv", "split": {"by": "rows", "train": 5, "test": 0}},
        {"test": "t.csv", "split": {"by": "fraction", "valid": 0.1}},
        {"valid": "v.csv", "split": {"by": "time", "test": "2020-01-01"}},
        {"delimiter": "::", "quote": ""},
    ],
)
def test_what_goes_together_is_taken(settings: dict[str, Any]) -> None:
    config(**settings)


def test_settings_of_the_schema_take_the_place_of_a_formats_own() -> None:
    made = DataConfig(format="criteo", train="x", numbers=["I1"], group="C1")
    schema = schema_of(made)
    assert [number.column for number in schema.numbers] == ["I1"]
    assert len(schema.ids) == 26
    assert schema.group == "C1"
    assert schema_of(DataConfig(format="criteo", train="x", transform="bucket")).numbers[0].transform == Bucket()


def test_a_dialect_comes_from_the_settings_and_the_name() -> None:
    assert dialect_of(config(), "a.csv.gz") == Dialect()
    assert dialect_of(config(), "a.tsv.gz").delimiter == "\t"
    assert dialect_of(config(delimiter=";", quote=""), "a.tsv") == Dialect(delimiter=";", quote=None)
    assert dialect_of(config(columns=["y", "a"]), "a.csv") == Dialect(header=False, columns=("y", "a"))
    assert dialect_of(config(columns=["y", "a"], header=True), "a.csv") == Dialect(columns=("y", "a"))


def test_files_are_found_from_the_base_on(folder: Path) -> None:
    data = open_data(config(train=["b.csv", "a.csv"], valid="c.csv", test=folder / "c.csv"), folder)
    assert names(data.train) == [f"r{row}" for row in (*range(10, 13), *range(10))]
    assert names(data.valid) == names(data.test) == ["r20", "r21"]
    assert data.schema == data.train.schema
    bare = open_data(config(), folder)
    assert (bare.valid, bare.test) == (None, None)


def test_rows_are_split_off_and_other_parts_may_be_files(folder: Path) -> None:
    by_rows = config(split={"by": "rows", "train": 6, "valid": 1, "test": 0}, test="c.csv")
    data = open_data(by_rows, folder)
    assert names(data.train) == [f"r{row}" for row in range(6)]
    assert names(data.valid) == ["r6"]
    assert names(data.test) == ["r20", "r21"]
    data = open_data(config(time="t", split={"by": "time", "test": "1970-01-09"}, valid="c.csv"), folder)
    assert names(data.train) == [f"r{row}" for row in range(8)]
    assert names(data.test) == ["r8"]
    assert names(data.valid) == ["r20", "r21"]


def test_day_after_day_by_a_time_column(folder: Path) -> None:
    data = open_data(config(time="t", split={"by": "days", "last": 2}), folder)
    days = [(day.name, names(day.train), names(day.test)) for day in data.days()]
    assert days == [
        ("1970-01-09", [f"r{row}" for row in range(8)], ["r8"]),
        ("1970-01-10", ["r8"], ["r9"]),
    ]
    assert len(names(data.train)) == 10
    assert data.test is None


def test_day_after_day_by_files(folder: Path) -> None:
    data = open_data(config(train="?.csv", test={"next": "day"}), folder)
    days = [(day.name, names(day.train), names(day.test)) for day in data.days()]
    assert [name for name, _, _ in days] == ["b.csv", "c.csv"]
    assert days[0][1] == [f"r{row}" for row in range(10)]
    assert days[1][1:] == (["r10", "r11", "r12"], ["r20", "r21"])


def test_files_of_one_name_in_different_folders_are_different_days(folder: Path) -> None:
    for day in ("one", "two"):
        (folder / day).mkdir()
        (folder / day / "part.csv").write_text(f"y,a\n1,{day}\n")
    data = open_data(config(train="*/part.csv", test={"next": "day"}), folder)
    assert [(day.name, names(day.test)) for day in data.days()] == [(str(folder / "two/part.csv"), ["two"])]


def test_without_days_the_remedy_is_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"data: is not read day by day: set split = \{ by = 'days' \}"):
        open_data(config(), folder).days()


def test_all_sources_share_one_account_of_malformed_lines(folder: Path) -> None:
    for name in ("a.csv", "c.csv"):
        (folder / name).write_text("y,a\n1,x\n1\n")
    data = open_data(config(test="c.csv"), folder)
    assert names(data.train) == names(data.test) == ["x"]
    assert data.train.trouble is data.test.trouble  # type: ignore[union-attr]
    assert data.train.trouble.malformed == 2


def test_what_numbers_leave_open_is_measured_on_the_training_part_and_kept(folder: Path) -> None:
    standard = {"column": "n", "transform": "standard"}
    made = config(numbers=[standard], split={"by": "rows", "train": 4})
    data = open_data(made, folder)
    assert data.test is not None
    for schema in (data.schema, data.train.schema, data.test.schema):
        assert schema.numbers[0].transform == Standard(mean=1.5, deviation=1.25**0.5)
    kept = made.with_schema(data.schema)
    assert open_data(kept, folder).schema == data.schema
    assert DataConfig(**json.loads(json.dumps(kept.model_dump(mode="json", exclude_none=True)))) == kept


def test_the_limit_of_malformed_lines_is_the_configs(folder: Path) -> None:
    (folder / "a.csv").write_text("y,a\n1,x\n1\n1\n")
    assert names(open_data(config(malformed=2), folder).train) == ["x"]
    with pytest.raises(InputError, match="the limit is 1 lines"):
        names(open_data(config(malformed=1), folder).train)


def test_other_formats_are_opened_by_their_names(folder: Path) -> None:
    pq.write_table(pa.table({"y": [1], "a": pa.array([["p", "q"]])}), folder / "a.parquet")
    data = open_data(config(format="parquet", train="a.parquet"), folder)
    assert data.schema.ids[0].several
    assert names(data.train) == [["p", "q"]]  # type: ignore[comparison-overlap]
    (folder / "a.svm").write_text("1 3:1\n")
    svm = open_data(DataConfig(format="libsvm", train="a.svm"), folder)
    assert [row["features"] for batch in svm.train.read() for row in batch.to_pylist()] == [[3]]


def test_a_source_to_predict_needs_no_labels(folder: Path) -> None:
    (folder / "new.csv").write_text("a\nr1\n")
    assert names(open_source(config(), "new.csv", folder, labels=False)) == ["r1"]
    with pytest.raises(InputError, match="there is no label column 'y'"):
        names(open_source(config(), "new.csv", folder))


def test_a_setting_that_must_name_one_file_and_names_several_is_told(folder: Path) -> None:
    made = DataConfig(format="taobao", train="a.csv", ads="?.csv", users="a.csv")
    with pytest.raises(ConfigError, match=r"data\.ads='\?\.csv': names 3 files, must name one"):
        open_data(made, folder)
