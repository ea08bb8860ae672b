"""The synthetic stream: every row a function of its number, Zipf ids, and a teacher whose best is known."""

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow.data.batch import Batch, concatenated
from hotrow.data.decode import Decoder
from hotrow.data.files import find_files
from hotrow.data.loader import Loader
from hotrow.data.parquet import ParquetSource
from hotrow.data.source import Source
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource, best, write_parquet
from hotrow.data.synthetic.config import Part
from hotrow.data.synthetic.draws import Zipf
from hotrow.data.synthetic.rows import BLOCK, STEADY_RANKS
from hotrow.errors import ConfigError
from hotrow.metrics import auc, logloss_of_logits
from profiles import examples

SMALL = {"features": 3, "numbers": 2, "ids": 1000}


def made(part: Part = "train", **changes: Any) -> SyntheticSource:
    return SyntheticSource(SyntheticConfig(**{"rows": 1000, "test_rows": 100, **SMALL, **changes}), part)


def table(source: Source, skip: int = 0) -> dict[str, NDArray[Any]]:
    """All columns as arrays."""
    batches = list(source.read(skip))
    return {name: np.concatenate([batch[name].to_numpy() for batch in batches]) for name in batches[0].schema.names}


def labels_of(source: SyntheticSource) -> NDArray[np.float64]:
    return table(source)["label"].astype(np.float64)


def mixed_twin(value: int) -> int:
    """The finaliser of splitmix64, in whole numbers."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ value >> shift) * factor % 2**64
    return value ^ value >> 31


@settings(max_examples=examples(15))
@given(skip=st.integers(0, 40_000), days=st.integers(1, 5))
def test_skipping_gives_exactly_the_rows_that_follow(skip: int, days: int) -> None:
    source = made(rows=40_000, days=days, drift=0.3, new_ids=0.2)
    whole = table(source)
    assert len(whole["label"]) == 40_000
    if skip == 40_000:
        assert list(source.read(skip)) == []
        return
    for name, column in table(source, skip).items():
        assert np.array_equal(column, whole[name][skip:]), name
    assert np.array_equal(source.log_odds(skip), source.log_odds()[skip:])
    assert np.array_equal(source.log_odds(skip, skip + 7), source.log_odds()[skip : skip + 7])


@pytest.mark.parametrize("rows", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_a_longer_stream_begins_with_the_shorter(rows: int) -> None:
    short, long = table(made(rows=rows)), table(made(rows=3 * BLOCK))
    for name in set(short) - {"time"}:
        assert np.array_equal(short[name], long[name][:rows]), name


@pytest.mark.parametrize("scattered", [True, False])
def test_batches_are_what_decoding_the_columns_gives(scattered: bool) -> None:
    source = made(rows=BLOCK + 100, scattered=scattered)
    decoder = Decoder(source.schema)
    decoded = concatenated([decoder.batch(batch) for batch in source.read(50)])
    direct = concatenated(list(source.read_batches(50)))
    assert decoded.parts[0].features == direct.parts[0].features
    assert decoded.labels is not None
    for mine, other in zip(_arrays(direct), _arrays(decoded), strict=True):
        assert mine.dtype == other.dtype
        assert np.array_equal(mine, other)
    assert next(source.read_batches(labels=False)).labels is None
    through = concatenated([batch for _, batch in Loader(source, 333)])
    assert np.array_equal(through.parts[0].keys[150:], direct.parts[0].keys)


def _arrays(batch: Batch) -> list[NDArray[Any]]:
    assert batch.labels is not None
    assert batch.times is not None
    return [batch.parts[0].keys, batch.numbers, batch.labels, batch.times]


def test_ids_are_scattered_by_a_bijection() -> None:
    plain, scattered = table(made(rows=20_000, scattered=False)), table(made(rows=20_000))
    sizes = SyntheticConfig(**SMALL).feature_sizes()
    starts = [0, sizes[0], sizes[0] + sizes[1]]
    pairs = set()
    for name, start, size in zip(("id_1", "id_2", "id_3"), starts, sizes, strict=True):
        assert plain[name].min() == start
        assert start + size // 2 < plain[name].max() < start + size
        pairs |= set(zip(plain[name].tolist(), scattered[name].tolist(), strict=True))
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})
    (offset,) = {mixed_twin_inverse(other % 2**64) ^ one for one, other in pairs}  # the seed's, the same for all
    assert offset != 0
    top = np.array([other for _, other in pairs]) >> 60
    assert set(top.tolist()) == set(range(-8, 8))  # all over 64 bits
    for name in ("label", "number_1", "number_2"):
        assert np.array_equal(plain[name], scattered[name])  # the teacher does not care


def mixed_twin_inverse(value: int) -> int:
    """Undoes the twin, step by step."""
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9)):
        value = _unshifted(value, shift) * pow(factor, -1, 2**64) % 2**64
    return _unshifted(value, 30)


def _unshifted(value: int, shift: int) -> int:
    found = value
    for _ in range(64 // shift):
        found = value ^ found >> shift
    return found


@given(st.integers(0, 2**64 - 1))
def test_the_twin_is_undone(value: int) -> None:
    assert mixed_twin_inverse(mixed_twin(value)) == value


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1 + 1e-7, 1.2, 3.0])
@pytest.mark.parametrize("size", [1, 10, 5000])
def test_ranks_come_as_often_as_zipfs_law_says(exponent: float, size: int) -> None:
    draws = 200_000
    chance = (np.arange(draws) + 0.5) / draws  # evenly spread: no noise
    counts = np.bincount(Zipf(size, exponent).ranks(chance) - 1, minlength=size)
    edges = np.arange(1, size + 2, dtype=np.float64)
    integral = np.log(edges) if abs(exponent - 1) < 1e-5 else edges ** (1 - exponent) / (1 - exponent)
    expected = np.diff(integral) / (integral[-1] - integral[0]) * draws
    assert len(counts) == size
    assert np.abs(counts - expected).max() < 1.5 + 1e-3 * draws * abs(exponent - 1) * (0 < abs(exponent - 1) < 1e-5)


@pytest.mark.parametrize("size", [2**53 - 1, 2**53 + 1, 2**62 + 1, 2**63 - 1, 2**63])
@pytest.mark.parametrize("exponent", [0.0, 0.9, 1.0, 2.0])
def test_no_rank_lies_outside_of_a_huge_id_space(size: int, exponent: float) -> None:
    ranks = Zipf(size, exponent).ranks(np.array([0.0, 0.25, 0.5, 1 - 2.0**-53])).tolist()
    assert ranks[0] == 1
    assert ranks == sorted(ranks)
    assert ranks[-1] <= size


def test_frequencies_in_the_stream_follow_the_exponent() -> None:
    found = table(made(rows=60_000, zipf=1.5))["id_3"]
    counts = np.array([count for _, count in Counter(found.tolist()).most_common(20)])
    sizes = SyntheticConfig(**SMALL).feature_sizes()
    edges = np.arange(1, sizes[-1] + 2, dtype=np.float64) ** -0.5
    expected = 60_000 * -np.diff(edges)[:20] / (edges[0] - edges[-1])
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 5).all()


def test_an_id_space_of_2_to_the_63_costs_nothing() -> None:
    source = made(rows=5000, ids=2**63, features=26, zipf=0.3)
    columns = table(source)
    assert sum(source.config.feature_sizes()) == 2**63
    assert len(np.unique(columns["id_26"])) == 5000
    assert len(np.unique(columns["id_1"])) == 10


@given(features=st.integers(1, 60), ids=st.one_of(st.integers(1, 5000), st.integers(1, 2**63)))
def test_sizes_of_features_rise_and_add_up(features: int, ids: int) -> None:
    if ids < features:
        with pytest.raises(ConfigError, match="every feature needs an id"):
            SyntheticConfig(features=features, ids=ids)
        return
    sizes = SyntheticConfig(features=features, ids=ids).feature_sizes()
    assert len(sizes) == features
    assert sum(sizes) == ids
    assert sizes == sorted(sizes)
    assert sizes[0] >= 1


def test_labels_are_drawn_by_the_teachers_chances() -> None:
    source = made(rows=60_000, features=8, ids=5000)
    odds, labels = source.log_odds().astype(np.float64), labels_of(source)
    order = np.argsort(odds)
    for part in np.array_split(order, 10):
        chance = 1 / (1 + np.exp(-odds[part]))
        assert abs(labels[part].mean() - chance.mean()) < 5 * np.sqrt((chance * (1 - chance)).mean() / len(part))
    assert abs(odds.std() - 1.6) < 0.1


def test_the_best_is_what_the_teacher_reaches_on_drawn_labels() -> None:
    source = made(rows=60_000)
    odds, labels = source.log_odds(), labels_of(source)
    found = best(odds)
    assert found.auc is not None
    reached = auc(labels, odds)
    loss = logloss_of_logits(labels, odds)
    assert reached is not None
    assert loss is not None
    assert abs(found.auc - reached) < 0.01
    assert abs(found.logloss - loss) < 0.01
    assert 0.78 < found.auc < 0.88
    assert best(odds[:1]).auc is None


@given(st.lists(st.floats(-60, 60, width=32), min_size=2, max_size=12))
def test_the_best_equals_the_mean_over_all_pairs(odds: list[float]) -> None:
    values = np.array(odds, np.float32)
    chance = 1 / (1 + np.exp(-values.astype(np.float64)))
    miss = 1 / (1 + np.exp(values.astype(np.float64)))
    won = pairs = 0.0
    for one in range(len(odds)):
        for other in range(len(odds)):
            if one != other:
                pairs += chance[one] * miss[other]
                won += (
                    chance[one]
                    * miss[other]
                    * (0.5 * (values[one] >= values[other]) + 0.5 * (values[one] > values[other]))
                )
    found = best(values)
    assert found.auc == pytest.approx(won / pairs, rel=1e-6, abs=1e-6)
    entropy = np.where(chance > 0, -chance * np.log(chance), 0) + np.where(miss > 0, -miss * np.log(miss), 0)
    assert found.logloss == pytest.approx(entropy.mean(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.25, 0.9])
def test_the_click_rate_is_the_one_asked_for_on_every_day(rate: float) -> None:
    source = made(rows=60_000, days=3, drift=0.5, click_rate=rate, features=8, ids=5000)
    for labels in np.array_split(labels_of(source), 3):
        assert abs(labels.mean() - rate) < 6 * np.sqrt(rate * (1 - rate) / 20_000)


def test_without_signal_nothing_can_be_known() -> None:
    found = best(made(signal=0.0, click_rate=0.5).log_odds())
    assert found.auc == pytest.approx(0.5, abs=1e-6)
    assert found.logloss == pytest.approx(np.log(2), abs=1e-6)


def test_the_first_two_features_act_together_by_a_product() -> None:
    """Without numbers the log-odds of (a, b) are bias + w(a) + w(b) + s(a) s(b): what is not additive has rank 1."""
    source = made(rows=60_000, features=2, numbers=0, ids=30, zipf=0.0)
    columns, odds = table(source), source.log_odds().astype(np.float64)
    first, rows = np.unique(columns["id_1"], return_inverse=True)
    second, places = np.unique(columns["id_2"], return_inverse=True)
    grid = np.full((len(first), len(second)), np.nan)
    grid[rows, places] = odds
    assert not np.isnan(grid).any()
    assert np.abs(grid[rows, places] - odds).max() < 1e-5  # the pair of ids says all
    left = grid - grid.mean(0) - grid.mean(1)[:, None] + grid.mean()
    strengths = np.linalg.svd(left, compute_uv=False)
    assert strengths[0] > 1.0
    assert strengths[1] < 1e-4


def odds_by_id(source: SyntheticSource, day: int) -> dict[int, float]:
    """Of a stream of one feature: what each id of a day weighs."""
    rows = source.rows() // source.config.days
    batches = [batch["id_1"].to_numpy() for batch in source.read(day * rows)]
    ids = np.concatenate(batches)[:rows].tolist()
    return dict(zip(ids, source.log_odds(day * rows, (day + 1) * rows).tolist(), strict=True))


def test_a_share_of_the_weights_moves_each_day() -> None:
    source = made(rows=60_000, days=4, features=1, numbers=0, ids=500, zipf=0.2, drift=0.3)
    before, after = odds_by_id(source, 1), odds_by_id(source, 2)
    common = sorted(before.keys() & after.keys())
    shifts = np.array([after[each] - before[each] for each in common])
    usual = np.median(shifts)  # the bias keeps the click rate
    moved = np.abs(shifts - usual) > 1e-4
    assert len(common) == 500
    assert abs(moved.mean() - 0.3) < 0.08
    steady = made(rows=60_000, days=4, features=1, numbers=0, ids=500, zipf=0.2)
    assert odds_by_id(steady, 0) == odds_by_id(steady, 3)


def test_new_ids_replace_a_share_each_day_and_never_the_most_frequent() -> None:
    source = made(rows=60_000, days=6, features=1, numbers=0, ids=500, zipf=0.2, new_ids=0.4, scattered=False)
    ids = table(source)["id_1"]
    for day, per_day in enumerate(np.split(ids, 6)):
        found = np.unique(per_day)
        assert len(np.unique(found % 500)) == len(found)  # in each place of the order, one id a day
        generation = found // 500
        steady = found % 500 < STEADY_RANKS
        assert (generation[steady] == 0).all()
        assert abs(generation[~steady].mean() - day * 0.4) < 0.1
        assert set(generation[~steady].tolist()) <= {int(day * 0.4), int(day * 0.4) + 1}


def test_days_are_of_equal_size_and_times_rise_through_them() -> None:
    source = made(rows=1000, days=7, first_day=date(2023, 12, 30))
    times = table(source)["time"]
    assert (np.diff(times) >= 0).all()
    days = [datetime.fromtimestamp(second, UTC).date() for second in times.tolist()]
    assert sorted(Counter(days)) == [
        date(2023, 12, 30),
        date(2023, 12, 31),
        *(date(2024, 1, day) for day in range(1, 6)),
    ]
    assert set(Counter(days).values()) == {142, 143}
    assert len(set(table(made(rows=5, days=5))["time"] // 86_400)) == 5


def test_held_out_rows_are_other_draws_of_the_last_day() -> None:
    parts: dict[Part, dict[str, NDArray[Any]]] = {
        part: table(made(part, rows=500, valid_rows=500, test_rows=500, days=2)) for part in ("train", "valid", "test")
    }
    assert len({columns["number_1"].tobytes() for columns in parts.values()}) == 3
    for part in ("valid", "test"):
        assert set((parts[part]["time"] // 86_400).tolist()) == {parts["train"]["time"][-1] // 86_400}
    assert list(made("valid").read()) == []


def test_the_seed_changes_everything() -> None:
    one, other = table(made(seed=1)), table(made(seed=2))
    assert not np.array_equal(one["label"], other["label"])
    assert not np.array_equal(one["number_1"], other["number_1"])
    assert not set(one["id_1"].tolist()) & set(other["id_1"].tolist())


def test_numbers_are_about_normal() -> None:
    values = table(made(rows=60_000))["number_2"].astype(np.float64)
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02
    assert abs((values**3).mean()) < 0.05
    assert abs((np.abs(values) < 1).mean() - 0.6827) < 0.02


@pytest.mark.parametrize("rows", [1, BLOCK, 9 * BLOCK + 5])
def test_a_parquet_file_holds_the_first_rows(rows: int, tmp_path: Path) -> None:
    config = SyntheticConfig(rows=10 * BLOCK, **SMALL)
    path = write_parquet(tmp_path / "clicks.parquet", config, rows)
    source = SyntheticSource(config)
    stored = table(ParquetSource(find_files(path), source.schema))
    for name, column in table(source).items():
        assert np.array_equal(stored[name].astype(column.dtype), column[:rows]), name
    with pytest.raises(ConfigError, match="rows=163,841"):
        write_parquet(path, config, 10 * BLOCK + 1)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "days": ({"rows": 5, "days": 6}, "days=6 is more than rows=5"),
    "features": ({"features": 9, "ids": 8}, "features=9 is more than ids=8"),
    "calendar": ({"days": 400, "first_day": date(9999, 1, 1)}, "leave the calendar"),
    "generations": ({"ids": 2**63, "days": 30, "new_ids": 0.1}, "need more than 64 bits"),
    "ids": ({"ids": 2**63 + 1}, "ids=9223372036854775809"),
    "rate": ({"click_rate": 0.0}, "click_rate=0.0"),
    "unknown": ({"colour": 1}, "colour=1: there is no such setting"),
}


@pytest.mark.parametrize(("settings", "sentence"), REFUSED.values(), ids=REFUSED)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SyntheticConfig(**settings)


def test_settings_at_their_bounds_are_fine() -> None:
    assert made(rows=6, days=6, features=8, ids=8).rows() == 6
    assert SyntheticConfig(ids=2**63, days=11, new_ids=0.1).generations == 2
