"""Rows and bytes that are predicted from the first quarter of the data are within 20 % of a run over all of it.

`pytest -s` prints both sides.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hotrow as hr
from hotrow.data.config import Data, DataConfig, open_data
from hotrow.data.synthetic import SyntheticConfig
from hotrow.plan.row_bytes import AHEAD_BYTES
from hotrow.plan.sample import read_sample
from hotrow.plan.tables import PlannedTable, forecast
from hotrow.run.build import shape_of, tables_of

WITHIN = 0.2

SYNTHETIC: dict[str, dict[str, Any]] = {
    "default skew": {},
    "flat": {"zipf": 0.9},
    "steep, few ids": {"zipf": 1.6, "ids": 20_000},
    "new ids every day": {"days": 8, "new_ids": 0.1},
}
SAMPLES: dict[str, dict[str, Any]] = {
    "criteo_dac80k": {"format": "criteo", "train": "criteo_dac80k.tsv.gz"},
    "avazu_9k": {"format": "avazu", "train": "avazu_9k.csv.gz"},
    "frappe_x1": {"train": "train_rebuilt.csv.gz", "label": "label", "ids": ["user", "item", "daytime", "weekday"]},
    "talkingdata_100k": {
        "train": "train_sample.csv.gz",
        "label": "is_attributed",
        "ids": ["ip", "app", "device", "os", "channel"],
    },
}


def check(name: str, data: Data, rows: int) -> None:
    """Predict from a quarter, train on all, compare."""
    tables = tables_of(data.schema, {"default": hr.Table(dim=8)})
    sample = read_sample(data.train, batch=1024, rows=rows // 4)
    trainer = hr.Trainer(hr.models.build("fm", shape_of(data.schema, tables)), tables, global_batch=4096, threads=1)
    for _ in trainer.fit(data.train):
        pass
    for table, settings in tables.items():
        found = forecast(PlannedTable.of(settings, None, "fp32"), sample.tables[table], trainer.samples, shards=1)
        stats = trainer.tables.tiers[table].stats()
        used = stats.slab_bytes + stats.index_bytes
        print(
            f"{name}, table {table}: {found.distinct:,.0f} rows predicted from {sample.rows:,} of {trainer.samples:,} "
            f"rows, {stats.rows:,} in the run ({100 * (found.distinct / stats.rows - 1):+.1f} %); {found.ram_bytes:,} "
            f"bytes predicted, {used:,} used in the run ({100 * (found.ram_bytes / used - 1):+.1f} %)"
        )
        assert found.distinct == pytest.approx(stats.rows, rel=WITHIN)
        assert found.ram_bytes == pytest.approx(used, rel=WITHIN)
        assert stats.bytes <= (1 + WITHIN) * found.ram_bytes + AHEAD_BYTES
    trainer.close()


@pytest.mark.parametrize("kind", SYNTHETIC.values(), ids=SYNTHETIC)
def test_the_synthetic_stream_has_the_predicted_rows_and_bytes(kind: dict[str, Any]) -> None:
    rows = 40_000
    check("synthetic", open_data(SyntheticConfig(**{"rows": rows, "ids": 300_000, "features": 12, **kind})), rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [{}, {"zipf": 1.05}, {"zipf": 0.5}, {"zipf": 0.0, "ids": 100_000}, {"days": 8, "new_ids": 0.1}], ids=str
)
def test_a_sixteenth_of_a_stream_predicts_its_ids_within_a_quarter(kind: dict[str, Any]) -> None:
    data = open_data(SyntheticConfig(**{"rows": 100_000, "ids": 500_000, "features": 10, **kind}))
    sample, whole = (read_sample(data.train, batch=1024, rows=rows).tables["default"] for rows in (6250, None))
    rows = whole.distinct
    print(
        f"synthetic {kind}: {sample.rows(100_000) / rows - 1:+.1%} from a sixteenth, by Heaps' law alone "
        f"{sample.rows_most(100_000) / rows - 1:+.1%}"
    )
    assert sample.rows(100_000) == pytest.approx(rows, rel=0.25)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_sample_has_the_predicted_rows_and_bytes(name: str, data_dir: Callable[[str], Path]) -> None:
    settings = SAMPLES[name]
    config = DataConfig(**{**settings, "train": str(data_dir(name) / settings["train"])})
    data = open_data(config)
    check(name, data, sum(batch.num_rows for batch in data.train.read()))
