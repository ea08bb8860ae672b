"""The arithmetic of `hotrow bench cache`: skew, bytes, bounds, speed-ups; counts agree with a slow twin."""

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hotrow.bench.cache import against_oracles, decisions, report, saved_bytes
from hotrow.bench.cache.against_oracles import OracleCell
from hotrow.bench.cache.bound import StepCost
from hotrow.bench.cache.cells import cache_of, choices, measure_cell
from hotrow.bench.cache.counting import TraceCounts, count_trace, uncached_bytes
from hotrow.bench.cache.epoch import AHEAD, CACHED, GATHERED, PLAIN, EpochRow, figures_of, rows_of
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.policies import ideal_miss_rate
from hotrow.bench.cache.saved_bytes import WireCell, bound_saving, wire_figures
from hotrow.bench.cache.skew import fitted_exponent, presence, top_share, weights
from hotrow.bench.cache.streams import IdTrace, gowalla_samples, sample_trace, warm_steps, zipf_trace
from hotrow.bench.rounds import SilentProgress
from hotrow.errors import ConfigError

QUICK = CachePlan().quick()
WATCH = SilentProgress()


def small_trace() -> IdTrace:
    return zipf_trace(QUICK, "small", 500, 1.1)


def test_the_fitted_exponent_gives_a_tenth_of_the_ids_most_updates() -> None:
    exponent = fitted_exponent(20_000, 3_328)
    assert top_share(20_000, exponent, 3_328) == pytest.approx(0.9, abs=0.002)
    assert top_share(20_000, exponent - 0.05, 3_328) < 0.895
    assert top_share(20_000, exponent + 0.05, 3_328) > 0.905


def test_presence_is_the_share_of_batches_that_hold_an_id() -> None:
    chances, rng = weights(50, 1.0), np.random.default_rng(0)
    drawn = [np.unique(rng.choice(50, 20, p=chances)) for _ in range(4_000)]
    seen = np.bincount(np.concatenate(drawn), minlength=50) / len(drawn)
    assert np.abs(seen - presence(chances, 20)).max() < 0.03
    assert presence(np.array([1.0, 0.0]), 3).tolist() == pytest.approx([1.0, 0.0])


def test_a_trace_has_distinct_ids_of_the_law_and_folded_batches_hold_more() -> None:
    trace = small_trace()
    assert (trace.workers, len(trace.steps[0]), len(trace.warm[0])) == (2, QUICK.steps, 6)
    assert all(len(np.unique(keys)) == len(keys) for mine in (*trace.steps, *trace.warm) for keys in mine)
    expected = presence(weights(500, 1.1), QUICK.ids).sum()
    assert trace.distinct == pytest.approx(expected, rel=0.05)
    assert len(trace.warm[0][0]) > 2 * trace.distinct


def test_every_sample_of_an_epoch_is_in_the_batch_of_one_worker() -> None:
    samples = np.arange(640, dtype=np.uint64).reshape(320, 2)
    plan = replace(QUICK, steps=10)  # 32 samples a step: one epoch
    trace = sample_trace(plan, "all", samples, ())
    assert sorted(np.concatenate([keys for mine in trace.steps for keys in mine]).tolist()) == list(range(640))
    assert sum(warm_steps(plan, 320)) * plan.global_samples >= 4 * 320


def test_users_and_places_have_keys_of_their_own(tmp_path: Path) -> None:
    import gzip

    with gzip.open(tmp_path / "visits.gz", "wt") as file:
        file.write("0 0 1\n1 1\n2\n")
    samples = gowalla_samples(tmp_path / "visits.gz")
    assert samples.shape == (3, 2)
    assert len(np.unique(samples)) == 4
    assert samples[0, 0] == samples[1, 0] != samples[0, 1]
    assert samples[1, 1] == samples[2, 1]


def test_misses_of_lru_and_bytes_are_those_of_a_slow_twin() -> None:
    trace, capacity = small_trace(), 200
    plan = replace(QUICK, size=capacity / 500)
    counts = count_trace(trace, cache_of(plan, 500, "lru", 2**20), WATCH)
    misses = evictions = ids = 0
    for warm, steps in zip(trace.warm, trace.steps, strict=True):
        held: OrderedDict[int, None] = OrderedDict()
        for turn, keys in enumerate([*warm, *steps]):
            absent = [key for key in keys.tolist() if key not in held]
            for key in keys.tolist():
                held.pop(key, None)
            assert len(keys) <= capacity
            gone = max(0, len(held) + len(keys) - capacity)
            for _ in range(gone):
                held.popitem(last=False)
            held |= dict.fromkeys(keys.tolist())
            if turn >= len(warm):
                misses, evictions, ids = misses + len(absent), evictions + gone, ids + len(keys)
    assert counts.ids == ids
    assert counts.misses == counts.fetched == pytest.approx(misses, rel=0.03)  # the order within a batch is free
    assert counts.evicted == counts.written == pytest.approx(evictions, rel=0.03)


def test_bytes_of_longer_rows_follow_from_those_of_one_float() -> None:
    counts = TraceCounts(batches=1, ids=10, hits=6, misses=4, fetched=5, written=3, evicted=2, plain_bytes=200)
    assert counts.bytes_of(1) == 200
    assert counts.bytes_of(128) == 200 + 4 * 127 * 8
    assert counts.bytes_of(128, 128) == 200 + 4 * 255 * 8
    assert uncached_bytes(10, 128) == 10 * (16 + 1024)
    assert counts.saving(128) == 1 - (200 + 4064) / 10_400
    assert counts.saving(128, 128) < counts.saving(128)


def test_staleness_0_saves_nothing_and_more_of_it_saves_more() -> None:
    trace = small_trace()
    cells = [measure_cell(QUICK, trace, "lfu", staleness, WATCH, size=0.5) for staleness in (0, 3, 100)]
    assert cells[0].bytes_saved < 0 < cells[1].bytes_saved < cells[2].bytes_saved
    for cell in cells:
        left = cell.left_misses + cell.left_refreshes + cell.left_checks
        assert left == pytest.approx(1 - cell.bytes_saved)
        assert min(cell.left_misses, cell.left_refreshes, cell.left_checks) >= -1e-9
        assert cell.bytes_saved_adagrad < cell.bytes_saved


def test_every_policy_stands_at_the_largest_staleness_and_all_others_at_one_policy() -> None:
    assert list(choices(CachePlan())) == [
        ("lru", 100), ("lfu", 100), ("light_lfu", 100), ("ahead", 100), ("lfu", 0), ("lfu", 10),
    ]  # fmt: skip


def test_the_bound_of_the_saving_is_what_ids_outside_of_the_cache_leave() -> None:
    plan = CachePlan()
    assert bound_saving(plan, 1.0) == pytest.approx(-12 / 1040)
    assert bound_saving(plan, 0.0) == 1 - 12 / 1040
    assert 0.88 < bound_saving(plan, 0.1) < 0.9


def test_the_bound_of_a_step_is_its_processor_time_or_its_bytes_whichever_is_longer() -> None:
    cost = StepCost(0.5, {"run": 0.02, "trainer 0": 0.1, "trainer 1": 0.08}, bytes_in=125e5, bytes_out=1e5)
    assert cost.link_s(1.0) == 0.1
    assert cost.bound_s(1.0, cores=2) == pytest.approx(0.1)
    assert cost.bound_s(2.0, cores=2) == pytest.approx(0.1)  # the processors are the bound
    assert cost.bound_s(0.5, cores=2) == pytest.approx(0.2)
    assert cost.own_cores_s(1.0) == pytest.approx(0.1)
    assert cost.own_cores_s(10.0) == pytest.approx(0.1)  # one trainer alone
    assert replace(cost, bytes_out=250e5).link_s(1.0) == 0.2  # the direction with more bytes
    assert cost.nbytes == 126e5


def test_speedups_are_medians_of_the_ratios_of_the_rounds() -> None:
    def costs(*seconds: float, nbytes: float) -> list[StepCost]:
        return [StepCost(each, {"all": 0.02}, nbytes, nbytes) for each in seconds]

    found = {
        CACHED: costs(0.1, 0.2, nbytes=12.5e5),
        PLAIN: costs(0.4, 0.6, nbytes=125e5),
        AHEAD: costs(0.3, 0.6, nbytes=125e5),
        GATHERED: costs(1.0, 2.0, nbytes=500e5),
    }
    plan = replace(QUICK, epoch_samples=10 * QUICK.global_samples)
    rows = rows_of(plan, 1.0, found, on=2)
    assert [row.contestant for row in rows] == [CACHED, PLAIN, AHEAD, GATHERED]
    assert rows[1].epoch_s == pytest.approx(5.0)
    assert (rows[0].link_s, rows[0].processor_s, rows[0].bound_s) == pytest.approx((0.1, 0.1, 0.1))
    figures = figures_of(rows)
    assert figures["epoch_speedup_1gbit"] == pytest.approx(3.5)
    assert figures["epoch_speedup_ar_1gbit"] == pytest.approx(10.0)
    assert figures["epoch_bound_share"] == figures["epoch_bound_share_1gbit"] == pytest.approx(0.075)
    assert figures["epoch_speedup_own_cores_1gbit"] == pytest.approx(5.0)
    assert figures["epoch_speedup_link_1gbit"] == pytest.approx(10.0)


def test_an_epoch_faster_than_its_bound_is_called_a_fault_of_the_measurement() -> None:
    def rows(seconds: float) -> list[EpochRow]:
        costs = {name: [StepCost(seconds, {"all": 0.1}, 1.0, 1.0)] for name in (CACHED, PLAIN, AHEAD, GATHERED)}
        return rows_of(QUICK, 1.0, costs, on=2)

    assert report.faults(rows(0.051)) == []
    said = report.faults(rows(0.049))
    assert len(said) == 4
    assert said[0].startswith("hybrid cached at 1 Gb/s: 1.02 of its bound")


def test_decisions_are_what_begin_receive_and_finish_take_of_all_parts() -> None:
    spent = {"unique": 1.0, "begin": 2.0, "receive": 1.0, "read": 3.0, "network": 10.0, "update": 2.0, "finish": 1.0}
    assert decisions.decision_share(spent) == 4 / 20


def test_the_network_of_the_decisions_has_the_parameters_of_the_papers_wdl() -> None:
    assert sum(each.numel() for each in decisions.WideNetwork(CachePlan()).parameters()) == 137_984


def test_steps_only_hit_in_a_whole_cache_and_miss_and_refresh_in_a_small_one() -> None:
    plan = replace(QUICK, hit_batches=30)
    found = decisions.measure(plan, WATCH)
    assert found["decision_hits_lru_missed"] == found["decision_hits_lru_refreshed"] == 0
    for policy in decisions.POLICIES:
        missed, refreshed = found[f"decision_misses_{policy}_missed"], found[f"decision_misses_{policy}_refreshed"]
        assert missed is not None
        assert refreshed is not None
        assert 0 < missed < 1
        assert 0 < refreshed < 1
    shares = [found[f"decision_share_{stream}_{each}"] for stream in ("hits", "misses") for each in decisions.POLICIES]
    assert found["decision_share"] == max(shares, key=float)  # type: ignore[arg-type]
    assert all(share is not None and 0 < share < 1 for share in shares)


def test_the_worst_stream_stands_for_all_beside_oracles() -> None:
    cells = [
        OracleCell("a", 10, {"lru": 0.5, "lfu": 0.6, "ahead": 0.7}, static=0.6, belady=0.7),
        OracleCell("b", 10, {"lru": 0.4, "lfu": 0.3, "ahead": 0.5}, static=0.5, belady=0.8),
    ]
    found = against_oracles.figures_of(cells)
    assert found == {
        "saving_vs_oracle": pytest.approx(0.8),
        "ahead_vs_oracle": pytest.approx(1.0),
        "ahead_vs_belady": pytest.approx(0.625),
    }


def test_the_wire_is_compared_with_the_trace_and_with_no_cache() -> None:
    cells = [
        WireCell("any", "hybrid", None, 100.0, 98.0),
        WireCell("any", "sync look-ahead", None, 104.0, 100.0),
        WireCell("sgd", "hybrid", 100, 20.0, 19.0),
    ]
    found = wire_figures(cells)
    assert found["wire_vs_trace_worst"] == pytest.approx(1 / 19)
    assert found["wire_bytes_saved_sgd"] == pytest.approx(0.8)


def test_the_ideal_cache_misses_the_ids_outside_of_the_most_popular_ones() -> None:
    trace = small_trace()
    assert ideal_miss_rate(QUICK, trace, 1.0) == 0
    updates = presence(weights(500, 1.1), QUICK.ids)
    assert ideal_miss_rate(QUICK, trace, 0.1) == pytest.approx(updates[50:].sum() / updates.sum())


def test_the_document_holds_every_table_that_was_measured_and_no_other() -> None:
    cell = measure_cell(QUICK, small_trace(), "lru", 10, WATCH)
    found = report.CacheResults(figures=saved_bytes.trace_figures(QUICK, [cell]), grid=[cell])
    written = report.document(QUICK, found)
    assert written["grid"][0]["policy"] == "lru"
    assert {"bytes_saved_small_lru_s10", "job", "command", "commit", "machine"} <= set(written)
    assert not {"epochs", "wire", "policies"} & set(written)


def test_an_updated_document_keeps_other_streams_and_tells_all_runs() -> None:
    before = {"a": 1, "b": 1, "grid": [{"stream": "x", "v": 1}, {"stream": "y", "v": 1}]}
    run = {"command": "one", "commit": "c1", "date": "d1", "job": {"workers": 2}}
    now = {"b": 2, "grid": [{"stream": "y", "v": 2}], "command": "two", "commit": "c2", "date": "d2"}
    now["job"] = {"workers": 8}
    whole = report.updated(before | run, now)
    assert (whole["a"], whole["b"], whole["command"]) == (1, 2, "two")
    assert whole["grid"] == [{"stream": "x", "v": 1}, {"stream": "y", "v": 2}]
    third = report.updated(whole, {"epochs": [1], "command": "three", "commit": "c3", "date": "d3"})
    assert [each["command"] for each in third["runs"]] == ["one", "two", "three"]
    assert [each.get("job", {}).get("workers") for each in third["runs"]] == [2, 8, None]
    assert third["grid"] == whole["grid"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"workers": 0}, "workers=0: must be 1"),
        ({"gbps": (1.0, 0.0)}, "gbps="),
        ({"rows": 9}, "^rows=9: must be 10"),
        ({"cluster_rows": 9}, "^cluster_rows=9: must be 10"),
        ({"only": ("other",)}, "--stream other: must be of paper_skew"),
    ],
)
def test_sizes_of_which_nothing_could_be_counted_are_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replace(CachePlan(), **changed).check()  # type: ignore[arg-type]
    CachePlan().check()
