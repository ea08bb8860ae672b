"""Sample weights: read beside the labels, checked row by row, and kept by whatever moves samples."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.data import ArrowSource, Loader, Schema
from hotrow.data.columns import Columns
from hotrow.data.config import DataConfig, open_data
from hotrow.data.decode import Decoder
from hotrow.data.describe import describe
from hotrow.data.parquet import ParquetSource, is_faultless
from hotrow.errors import ConfigError, InputError

SCHEMA = Schema(label="y", ids=["u"], weight="w")
ROWS = 10


def table(weights: list[object]) -> pa.Table:
    return pa.table({"y": [row % 2 for row in range(len(weights))], "u": range(len(weights)), "w": weights})


@pytest.mark.parametrize(
    ("weight", "fault"),
    [
        ("0", None),
        ("0.5", None),
        ("-0.001", "w '-0.001' is negative: a weight is 0 or more"),
        ("", "w is missing"),
        ("nan", "w 'nan' is missing"),
        ("inf", "w 'inf' is no number"),
        ("heavy", "w 'heavy' is no number"),
    ],
)
def test_a_weight_is_a_finite_number_from_0_and_any_other_row_is_malformed(weight: str, fault: str | None) -> None:
    source = ArrowSource(table(["1", weight, "2"]), SCHEMA)
    (batch,) = [batch for _, batch in Loader(source, 9)]
    assert batch.weights is not None
    assert batch.weights.dtype == np.float32
    assert batch.weights.tolist() == [1.0, *([float(weight)] if fault is None else []), 2.0]
    assert [each.reason for each in source.trouble.first] == ([] if fault is None else [fault])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_weights_are_read_from_files_and_described(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    given = table([0.0, 2.5, 1.0, 0.5])
    if kind == "csv":
        path.write_text("y,u,w\n0,0,0.0\n1,1,2.5\n0,2,1.0\n1,3,0.5\n")
    else:
        pq.write_table(given, path)
    source = open_data(DataConfig(format=kind, train=path, label="y", ids=["u"], weight="w")).train
    (batch,) = [batch for _, batch in Loader(source, 9)]
    assert batch.weights is not None
    assert batch.weights.tolist() == [0.0, 2.5, 1.0, 0.5]
    (weights,) = describe(source).numbers
    assert (weights.name, weights.low, weights.high, weights.mean) == ("w", 0.0, 2.5, 1.0)


def test_shuffling_and_batching_keep_each_weight_with_its_sample() -> None:
    source = ArrowSource([table([float(row) for row in range(50)])], SCHEMA)
    for _, batch in Loader(source, 7, shuffle=20, seed=3):
        assert batch.weights is not None
        assert batch.weights.tolist() == batch.parts[0].keys.tolist()


def test_data_to_predict_need_no_weights() -> None:
    source = ArrowSource(pa.table({"u": [1, 2]}), SCHEMA, labels=False)
    (batch,) = [batch for _, batch in Loader(source, 9, labels=False)]
    assert batch.weights is None


def test_data_without_the_column_are_refused() -> None:
    with pytest.raises(InputError, match="there is no column 'w'"):
        list(ArrowSource(pa.table({"y": [1], "u": [1]}), SCHEMA).read())


def test_whoever_decodes_other_data_is_told_of_the_first_wrong_weight() -> None:
    for wrong in (-1.0, None):
        record = table([1.0, wrong]).to_batches()[0]
        with pytest.raises(InputError, match=f"column 'w' row 1: {wrong} is no weight: must be 0 or more"):
            Decoder(SCHEMA).batch(record)


def test_a_label_is_no_weight() -> None:
    with pytest.raises(ConfigError, match="column 'y' is the label and the weight"):
        Schema(label="y", ids=["u"], weight="y")


@pytest.mark.parametrize(("lowest", "faultless"), [(0, True), (-1, False)])
def test_a_row_group_is_jumped_over_only_where_all_weights_count(tmp_path: Path, lowest: int, faultless: bool) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table([lowest, *range(1, ROWS)]), path, row_group_size=5)
    assert is_faultless(pq.ParquetFile(path), 0, Columns.of(SCHEMA)) is faultless
    left = ROWS - 5 if faultless else ROWS - 6
    source = ParquetSource(path, SCHEMA, limit=5)
    assert sum(batch.num_rows for batch in source.read(skip=5)) == left
