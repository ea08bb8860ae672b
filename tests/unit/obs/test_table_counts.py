"""Counts of caches and GPU memory: by table, as shares, in the report beside the tables, not among the trouble."""

import re

from hotrow.obs import gpu_counts
from hotrow.obs.cache_counts import hit_share, saved_share
from hotrow.obs.events import Events
from hotrow.obs.report.folder import ReportInputs
from hotrow.obs.report.run import tell
from hotrow.obs.report.tables import tables
from hotrow.obs.report.trouble import trouble
from hotrow.obs.table_counts import by_table, is_gauge, is_table_count

COUNTS = {
    "cache_hits.user": 900, "cache_misses.user": 50, "cache_awaited.user": 10, "cache_ahead.user": 30,
    "cache_invalid.user": 10, "cache_written.user": 45, "cache_bytes.user": 25, "cache_bytes_saved.user": 75,
    "cache_hits.item.x": 3, "cached_rows_lost": 4, "short_steps": 1,
    "gpu_rows.item": 70, "gpu_capacity.item": 128, "gpu_hits.item": 300, "gpu_up.item": 100, "gpu_up_ahead.item": 60,
    "gpu_down.item": 30, "gpu_seconds": 2,
}  # fmt: skip


def test_counts_are_told_apart_by_table() -> None:
    found = by_table(COUNTS, "cache")
    assert list(found) == ["user", "item.x"]
    assert found["item.x"] == {"hits": 3}
    assert [name for name in COUNTS if not is_table_count(name)] == ["cached_rows_lost", "short_steps", "gpu_seconds"]


def test_what_tells_how_it_is_now_is_no_sum() -> None:
    assert [name for name in COUNTS if is_gauge(name)] == ["gpu_rows.item", "gpu_capacity.item"]
    assert not is_gauge("gpu_rows")


def test_shares_are_of_all_lookups_and_of_all_bytes() -> None:
    user = by_table(COUNTS, "cache")["user"]
    assert (hit_share(user), saved_share(user)) == (0.9, 0.75)
    assert (hit_share({}), saved_share({})) == (0, 0)
    item = by_table(COUNTS, "gpu")["item"]
    assert (gpu_counts.hit_share(item), gpu_counts.hit_share({})) == (0.75, 0)


def test_the_report_shows_caches_beside_the_tables() -> None:
    run = tell(Events([{"time": 1, "kind": "end", "counts": COUNTS, "epochs": 1}], unreadable=0))
    folder = ReportInputs("run", run, "", {}, {}, {"user": {"rows": 5, "dim": 2}}, {})
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", tables(folder)))
    assert "cache hits" in page
    assert "user 900 50 10 10 30 45 0 0 0 0 90.0% 75 B 75.0%" in page
    assert "item 70 128 300 100 60 0 30 75.0%" in page
    troubles = trouble(folder)
    assert "hits" not in troubles
    assert "Cached rows lost" in troubles


def test_a_report_without_caches_has_no_such_table() -> None:
    run = tell(Events([{"time": 1, "kind": "end", "counts": {"short_steps": 1}}], unreadable=0))
    page = tables(ReportInputs("run", run, "", {}, {}, {"user": {"rows": 5, "dim": 2}}, {}))
    assert "cache hits" not in page
    assert "GPU memory" not in page
