"""HET's figures and table: the stream, the bytes of each variant, and what is made of them."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from hotrow.reproduce import het_adagrad, het_figures, het_picture, het_table_2
from hotrow.reproduce.het_cluster import DIM, HEAD, HEAD_SHARE, HetSize, exponent, keys_of, speed_of
from hotrow.sim import SimLease

SMALL = HetSize(ids=2_000, warm_up=6, measured=10)


def test_a_tenth_of_the_ids_takes_nine_tenths_of_the_draws() -> None:
    weights = np.arange(1, 20_001, dtype=np.float64) ** -exponent(20_000)
    assert weights[: round(HEAD * 20_000)].sum() / weights.sum() == pytest.approx(HEAD_SHARE, abs=1e-9)


def test_a_batch_has_the_same_keys_whenever_it_is_asked() -> None:
    first, again = (keys_of(SimLease(7, 128), 1, 2_000) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, keys_of(SimLease(8, 128), 1, 2_000))


def test_bytes_of_rows_without_a_cache_are_those_of_distinct_keys_both_ways() -> None:
    speed = speed_of("hybrid", 2, 1, 1, SMALL, 1)
    batches = 2 * (SMALL.warm_up + SMALL.measured)
    sizes = [len(keys_of(SimLease(number, 128), 1, SMALL.ids)) for number in range(1, batches + 1)]
    assert speed.row_bytes == pytest.approx(2 * (8 + 4 * DIM) * np.mean(sizes), rel=0.05)
    assert speed.hits is None


def test_replicas_gather_the_gradients_of_all_other_workers() -> None:
    alone, four = (speed_of("ar", workers, 1, 1, SMALL, 1) for workers in (1, 4))
    assert alone.row_bytes == 0
    plain = speed_of("hybrid", 4, 1, 1, SMALL, 1)
    assert four.row_bytes == pytest.approx(3 / 2 * plain.row_bytes, rel=0.1)  # once, where rows go both ways


def test_a_cache_saves_bytes_and_time_where_the_link_is_the_bottleneck() -> None:
    plain, cached = (speed_of(variant, 8, 1, 1, SMALL, 1) for variant in ("hybrid", "s=100"))
    assert cached.row_bytes < 0.5 * plain.row_bytes
    assert cached.qps > 1.2 * plain.qps
    assert cached.hits is not None
    assert cached.hits > 0.5


def test_hits_are_counted_after_the_warm_up() -> None:
    whole, later = (speed_of("s=100", 2, 1, 1, HetSize(2_000, warm, 16 - warm), 1).hits for warm in (0, 8))
    assert whole is not None
    assert later is not None
    assert later > 1.05 * whole  # of the same batches, without the first ones


def test_rows_found_invalid_after_the_warm_up_are_not_taken_from_the_hits_of_others() -> None:
    strict = speed_of("s=0", 8, 1, 1, HetSize(2_000, 6, 4), 1).hits
    assert strict is not None
    assert 0 <= strict < 0.2


@pytest.mark.slow
def test_a_figure_is_a_table_and_a_picture() -> None:
    result = het_figures.figure_9(quick=True)
    lines = het_figures.lines(result)
    assert any("cache s = 100" in line for line in lines)
    drawn = ElementTree.fromstring(het_picture.picture(result))
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}polyline")) == 12


def test_accumulators_of_adagrad_are_compared_at_each_staleness() -> None:
    names = het_adagrad.variants(het_adagrad.QUICK)
    found = {name: {seed: 0.8 - 0.01 * ("own" in name) + 0.001 * seed for seed in (1, 2, 3)} for name in names}
    result = het_adagrad.compared(het_adagrad.QUICK, found)
    assert [each["holds"] for each in result["promises"]] == [True] * 4
    assert any("s = 10, own alone" in line and "-0.0100" in line for line in het_adagrad.lines(result))
    found["s = 10, all workers"] = {seed: 0.797 + 0.001 * seed for seed in (1, 2, 3)}
    found["s = 0, all workers"] = found["s = 0, own alone"]
    worse = het_adagrad.compared(het_adagrad.QUICK, found)
    assert [each["holds"] for each in worse["promises"]] == [False, False, True, True]


def test_aucs_are_compared_seed_by_seed() -> None:
    def aucs(gap: float) -> dict[str, het_table_2.Aucs]:
        none = {"all": 0.8, "hit": 0.81, "miss": 0.79}
        worse = {name: value - gap for name, value in none.items()}
        return {name: worse if name == "no bound" else none for name in het_table_2.VARIANTS}

    by_seed = {seed: (aucs(0.05 + 0.001 * seed), 0.25) for seed in (1, 2, 3)}
    result = het_table_2.compared(het_table_2.QUICK, by_seed)
    gap = result["variants"]["no bound"]["minus_no_cache"]["all"]
    assert gap["mean"] == pytest.approx(-0.052)
    assert [each["holds"] for each in result["promises"]] == [True, True, True]
    assert any("25 %" in line for line in het_table_2.lines(result))
    equal = {seed: (aucs(0), 0.25) for seed in (1, 2, 3)}
    other = het_table_2.compared(het_table_2.QUICK, equal)
    assert [each["holds"] for each in other["promises"]] == [True, True, False]
