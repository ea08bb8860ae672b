"""The shares of `hotrow bench tiers` follow from the counters of a table, and fio's rate from its JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

from hotrow.bench.tiers.capacity import CapacityPoint, capacity_figures, points_of
from hotrow.bench.tiers.cluster import MODES, cluster_figures
from hotrow.bench.tiers.counted import (
    MeasuredStretch,
    TierCounts,
    disk_shares,
    flatness,
    processor_ratio,
    relative_rates,
    tier_figures,
)
from hotrow.bench.tiers.disk_rate import RandomReads, fio_command, fio_reads_per_s, threads_reads_per_s
from hotrow.bench.tiers.options import option_figures
from hotrow.bench.tiers.plan import CLUSTER_MODES, CapacityJob, TiersPlan
from hotrow.bench.tiers.stream import CapacityStream, stored_ids
from hotrow.data.loader import Loader
from hotrow.errors import ConfigError, HotrowError


def stretch(seconds: float, steps: int = 10, processor_s: float = 1.0, **counts: int | float) -> MeasuredStretch:
    return MeasuredStretch(seconds, steps, TierCounts(**counts), processor_s)  # type: ignore[arg-type]


def test_counts_of_a_stretch_are_the_difference_of_two_moments() -> None:
    before, after = TierCounts(1, 10, 100, 4, 2, 0.5, 1), TierCounts(5, 30, 400, 9, 3, 1.5, 4)
    assert after - before == TierCounts(4, 20, 300, 5, 1, 1.0, 3)


def test_hints_are_compared_within_rounds() -> None:
    assert tuple(mode.name for mode in MODES) == CLUSTER_MODES
    hinted = [stretch(2.0, moved_up=100, moved_ahead=75, wait_s=each) for each in (0.1, 0.4, 0.2)]
    unhinted = [stretch(4.0, moved_up=100, wait_s=each) for each in (1.0, 1.0, 1.0)]
    figures = cluster_figures({"hinted": hinted, "unhinted": unhinted})
    assert figures["wait_left"] == pytest.approx(0.2)
    assert (figures["hinted_late_share"], figures["unhinted_late_share"]) == (0.25, 1.0)
    assert figures["hinted_disk_wait_share"] == pytest.approx(0.1)
    assert figures["unhinted_disk_wait_ms"] == pytest.approx(100)
    assert figures["unhinted_step_ms"] == pytest.approx(400)


def test_shares_are_per_step_and_medians_over_rounds() -> None:
    rounds = [
        stretch(
            2.0,
            reads=100,
            read_bytes=409_600,
            write_bytes=4_000_000,
            moved_up=50,
            moved_ahead=40,
            buffered=10,
            wait_s=1.0,
        ),
        stretch(
            4.0,
            reads=400,
            read_bytes=1_638_400,
            write_bytes=8_000_000,
            moved_up=100,
            moved_ahead=100,
            buffered=40,
            wait_s=1.0,
        ),
        stretch(1.0, reads=100, read_bytes=409_600, write_bytes=3_000_000, moved_up=200, moved_ahead=100, wait_s=0.8),
    ]
    figures = tier_figures(rounds, distinct_ids=100)
    assert figures == {
        "processor_ms": pytest.approx(100),
        "ram_hit_share": pytest.approx(0.9),  # 10 of 100 distinct ids of a step came from the disk
        "moved_up_per_step": pytest.approx(10),
        "buffered_share": pytest.approx(0.2),
        "ahead_share": pytest.approx(0.8),
        "disk_wait_ms": pytest.approx(100),
        "disk_wait_share": pytest.approx(0.5),
        "disk_rows_per_s": pytest.approx(20),  # 10 of the 50 rows in the first round were in memory still
        "disk_reads_per_s": pytest.approx(100),
        "disk_read_bytes": pytest.approx(4096),
        "disk_write_mbps": pytest.approx(2),
    }


def test_a_table_that_reads_nothing_has_shares_too() -> None:
    figures = tier_figures([stretch(1.0)], distinct_ids=10)
    assert figures["ram_hit_share"] == 1
    assert figures["ahead_share"] == 0


def test_the_share_of_the_disk_rate_is_taken_within_rounds() -> None:
    counts = ((1.0, 100, 200), (1.0, 10, 30), (2.0, 100, 20))
    rounds = [stretch(seconds, reads=reads, moved_up=rows) for seconds, reads, rows in counts]
    shares = disk_shares(rounds, [200.0, 20.0, 50.0], [125.0, 12.5, 100.0])
    assert shares == {
        "disk_rate_share": pytest.approx(0.8),
        "disk_request_share": pytest.approx(0.5),
        "disk_row_share": pytest.approx(1.0),
    }
    for rates, sized in (([1.0] * 2, [1.0] * 3), ([1.0] * 3, [1.0] * 2)):
        with pytest.raises(ValueError, match=f"3 stretches and {len(rates)} and {len(sized)} rates"):
            disk_shares(rounds, rates, sized)


def test_processor_time_is_compared_by_the_step_and_within_rounds() -> None:
    base = [stretch(1.0, processor_s=each) for each in (1.0, 8.0, 3.0)]
    others = [stretch(1.0, steps=5, processor_s=each) for each in (1.0, 8.0, 1.0)]
    assert processor_ratio(base, others) == pytest.approx(0.5)


def test_relative_rates_do_not_depend_on_the_speed_of_a_round() -> None:
    seconds = {"a": np.array([1.0, 10.0, 3.0]), "b": np.array([2.0, 20.0, 6.0])}
    assert relative_rates(seconds) == {"a": pytest.approx(4 / 3), "b": pytest.approx(2 / 3)}
    assert flatness([4 / 3, 2 / 3]) == pytest.approx(0.5)
    assert flatness([0.7, 0.7]) == 1


def test_flatness_is_told_of_spaces_of_rows_and_of_all() -> None:
    plan = TiersPlan(samples=10, capacity=CapacityJob(parameters=(1e12, 2e12), stored_rows=(1_000_000, 2_000_000)))
    points = points_of(plan.capacity)
    assert points == [CapacityPoint(1e12, 2_000_000), CapacityPoint(2e12, 2_000_000), CapacityPoint(2e12, 1_000_000)]
    names = [point.name for point in points]
    assert names == ["t1_r2m", "t2_r2m", "t2_r1m"]
    seconds = dict(zip(names, (np.array([each]) for each in (1.0, 1.25, 1.0)), strict=True))
    kept = {name: [stretch(1.0, moved_up=70, processor_s=each)] for name, each in zip(names, (2, 2.5, 4), strict=True)}
    figures = capacity_figures(plan, points, seconds, kept)
    assert figures["spaces_flatness"] == figures["rows_flatness"] == pytest.approx(0.8)
    assert figures["capacity_flatness"] == pytest.approx(0.8)
    assert figures["processor_flatness"] == pytest.approx(0.5)
    assert figures["t2_r2m_processor_ms"] == pytest.approx(250)
    assert figures["t2_r2m_samples_per_s"] == pytest.approx(8)
    assert figures["t1_r2m_moved_up_per_step"] == pytest.approx(7)


def test_an_option_that_was_not_measured_has_no_gain() -> None:
    seconds = {name: np.array([each]) for name, each in (("base", 1.0), ("inline", 1.5), ("buffered", 0.5))}
    figures = option_figures(seconds, {name: [stretch(1.0, wait_s=0.2)] for name in seconds})
    assert figures["ahead_gain"] == pytest.approx(1.5)
    assert figures["direct_gain"] == pytest.approx(0.5)
    assert figures["uring_gain"] is None
    assert figures["binding_gain"] is None
    assert figures["base_disk_wait_ms"] == pytest.approx(20)


def fio_text(*iops: float, error: int = 0) -> str:
    return json.dumps({"jobs": [{"error": error, "read": {"iops": each}} for each in iops]})


def test_the_rate_of_fio_is_the_sum_of_its_jobs_after_its_warnings() -> None:
    assert fio_reads_per_s("fio: a warning\n" + fio_text(100.5, 20)) == pytest.approx(120.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no read rate"),
        ("{}", "has no read rate"),
        ('{"jobs": [{"error": 0}]}', "has no read rate"),
        (fio_text(100, error=5), "error 5: Input/output error"),
        (fio_text(0), "read nothing"),
    ],
)
def test_output_of_fio_without_a_rate_is_refused(text: str, message: str) -> None:
    with pytest.raises(HotrowError, match=message):
        fio_reads_per_s(text)


def test_fio_reads_past_the_page_cache_at_the_depth_asked_for() -> None:
    command = fio_command(Path("f"), 8192, 4096, 32, 0.5)
    assert {"--direct=1", "--rw=randread", "--bs=4096", "--iodepth=32", "--size=8192", "--runtime=500ms"} <= {*command}


def test_threads_measure_the_disk_where_fio_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reads = RandomReads(tmp_path, 1 << 22, depth=2)
    rate = reads.measure(0.05)
    assert rate.reader == "threads"
    assert rate.reads_per_s > 0
    larger = reads.measure(0.05, 1 << 20)
    assert (larger.block_bytes, larger.reads_per_s > 0) == (1 << 20, True)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 1 << 22
    assert threads_reads_per_s(file, 4096, 1, 0.02) > 0
    reads.close()
    assert list(tmp_path.iterdir()) == []


SMALL = TiersPlan(
    samples=1000,
    features=2,
    numbers=1,
    capacity=CapacityJob(stored_rows=(5_000,), hot_ids=100, steps=2, stored_share=0.1, new_share=0.2),
)


def test_stored_ids_are_distinct_and_in_every_space() -> None:
    ids = stored_ids(SMALL.capacity, np.arange(200_000))
    assert len(np.unique(ids)) == 200_000
    assert ids.min() >= 0
    assert ids.max() < min(SMALL.capacity.spaces) == 48_828_125_000


def test_a_stream_has_its_shares_of_hot_stored_and_new_ids() -> None:
    capacity = SMALL.capacity
    stream = CapacityStream(SMALL, max(capacity.spaces), 5_000, seed=3)
    (first, second) = [
        np.concatenate([batch.parts[0].keys for _, batch in Loader(stream.round(turn), 1000)]) for turn in (0, 1)
    ]
    places = {int(each): place for place, each in enumerate(stored_ids(capacity, np.arange(5_000)))}
    found = np.array([places.get(int(each), -1) for each in first])
    assert len(first) == 4_000
    assert np.mean(found == -1) == pytest.approx(0.2, abs=0.03)
    assert np.mean(found >= 100) == pytest.approx(0.1, abs=0.03)
    new = {int(each) for each in first[found == -1]}
    assert max(new) > min(capacity.spaces)
    assert not new & {int(each) for each in second}


def test_a_job_too_large_for_memory_or_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rows=1,000,000,000,000 at dim 128: needs .* GiB of memory, .* take fewer"):
        TiersPlan(rows=10**12).check_room(tmp_path, ("speed",))
    huge = TiersPlan(capacity=CapacityJob(stored_rows=(10**12,)))
    with pytest.raises(ConfigError, match="GiB of the disk of"):
        huge.check_room(tmp_path, ("capacity",))
