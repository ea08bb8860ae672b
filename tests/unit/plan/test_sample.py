"""What a sample tells is what a slow count over its rows tells."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hotrow.data import ArrowSource, Schema
from hotrow.data.config import open_data
from hotrow.data.loader import Loader
from hotrow.data.schema import Ids
from hotrow.data.synthetic import SyntheticConfig
from hotrow.errors import InputError
from hotrow.plan.sample import read_sample
from hotrow.run import load_config
from small_run import write_data


def source(rows: int, seed: int = 0) -> ArrowSource:
    rng = np.random.default_rng(seed)
    users, items = (
        rng.zipf(1.3, rows) % 5000,
        [list(map(int, rng.zipf(1.5, n) % 300)) for n in rng.integers(0, 5, rows)],
    )
    table = pa.table({"clicked": rng.integers(0, 2, rows), "user": users, "seen": items})
    ids = (Ids(column="user", table="user"), Ids(column="seen", table="item", several=True))
    return ArrowSource(table, Schema(label="clicked", ids=ids))


def test_distinct_ids_of_rows_and_batches_are_counted() -> None:
    found = read_sample(source(5000), batch=512)
    batches = [batch for _, batch in Loader(source(5000), 512)]
    assert (found.rows, found.whole) == (5000, True)
    for place, table in enumerate(("user", "item")):
        keys = [batch.parts[place].keys for batch in batches]
        sampled = found.tables[table]
        assert sampled.distinct == len(set(np.concatenate(keys).tolist())) == sampled.rows(5000)
        assert sampled.keys_per_sample == pytest.approx(sum(map(len, keys)) / 5000)
        assert sampled.unique_per_batch == pytest.approx(np.mean([len(np.unique(each)) for each in keys[:-1]]))
        lookups = sorted(Counter(key for each in keys for key in set(each.tolist())).values(), reverse=True)
        half = round(len(lookups) / 2)
        assert sampled.hit_share(0.5) == pytest.approx(sum(lookups[:half]) / sum(lookups))
        assert (sampled.hit_share(0.0), sampled.hit_share(1.0)) == (0.0, 1.0)


def test_a_law_is_fitted_for_each_feature_and_ids_in_common_are_counted_once() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 2000, 4000)
    table = pa.table({"clicked": rng.integers(0, 2, 4000), "a": ids, "b": ids[::-1]})
    one = ArrowSource(table, Schema(label="clicked", ids=["a", "b"]))
    found = read_sample(one, batch=100).tables["default"]
    keys = np.concatenate([part.keys for _, batch in Loader(one, 100) for part in batch.parts])
    assert set(found.features) == {"a", "b"}
    assert found.distinct == len(np.unique(keys)) == round(found.rows(4000))


def test_a_part_of_the_rows_is_read_and_no_more() -> None:
    found = read_sample(source(9000), batch=512, rows=4000)
    assert (found.rows, found.whole) == (4000, False)
    first = read_sample(source(9000), batch=4000, rows=4000)
    assert first.tables["user"].distinct == found.tables["user"].distinct
    assert read_sample(source(9000), batch=512, rows=9000).whole


def test_a_small_sample_of_more_rows_is_refused_and_small_data_is_counted() -> None:
    with pytest.raises(InputError, match="the sample has 1,999 rows: 2,000 or more are needed"):
        read_sample(source(9000), batch=512, rows=1999)
    assert read_sample(source(9000), batch=512, rows=2000).rows == 2000
    assert read_sample(source(700), batch=512).rows == 700, "all of it"
    with pytest.raises(InputError, match="the sample has 700 rows"):
        read_sample(source(700), batch=512, total=100_000)


def test_data_without_a_row_is_refused() -> None:
    with pytest.raises(InputError, match="there is no row in it"):
        read_sample(source(0), batch=512)


def test_text_files_and_the_synthetic_stream_are_read(tmp_path: Path) -> None:
    found = read_sample(open_data(load_config(write_data(tmp_path)).data).train, batch=256)
    assert found.rows == 3000
    assert found.tables["default"].distinct <= 70, "40 users and 30 items"
    made = read_sample(open_data(SyntheticConfig(rows=10_000, ids=1000)).train, batch=256, rows=4000)
    assert (made.rows, made.whole) == (4000, False)
