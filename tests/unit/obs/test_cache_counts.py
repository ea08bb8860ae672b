"""Counts of caches: by table, as shares, in the report beside the tables and not among the trouble."""

import re

from hotrow.obs.cache_counts import by_table, hit_share, is_cache_count, saved_share
from hotrow.obs.events import Events
from hotrow.obs.report.folder import ReportInputs
from hotrow.obs.report.run import tell
from hotrow.obs.report.tables import tables
from hotrow.obs.report.trouble import trouble

COUNTS = {
    "cache_hits.user": 900, "cache_misses.user": 50, "cache_awaited.user": 10, "cache_ahead.user": 30,
    "cache_invalid.user": 10, "cache_written.user": 45, "cache_bytes.user": 25, "cache_bytes_saved.user": 75,
    "cache_hits.item.x": 3, "cached_rows_lost": 4, "short_steps": 1,
}  # fmt: skip


def test_counts_are_told_apart_by_table() -> None:
    found = by_table(COUNTS)
    assert list(found) == ["user", "item.x"]
    assert found["item.x"] == {"hits": 3}
    assert [name for name in COUNTS if not is_cache_count(name)] == ["cached_rows_lost", "short_steps"]


def test_shares_are_of_all_lookups_and_of_all_bytes() -> None:
    user = by_table(COUNTS)["user"]
    assert (hit_share(user), saved_share(user)) == (0.9, 0.75)
    assert (hit_share({}), saved_share({})) == (0, 0)


def test_the_report_shows_caches_beside_the_tables() -> None:
    run = tell(Events([{"time": 1, "kind": "end", "counts": COUNTS, "epochs": 1}], unreadable=0))
    folder = ReportInputs("run", run, "", {}, {}, {"user": {"rows": 5, "dim": 2}}, {})
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", tables(folder)))
    assert "cache hits" in page
    assert "user 900 50 10 10 30 45 0 0 0 0 90.0% 75 B 75.0%" in page
    troubles = trouble(folder)
    assert "hits" not in troubles
    assert "Cached rows lost" in troubles


def test_a_report_without_caches_has_no_such_table() -> None:
    run = tell(Events([{"time": 1, "kind": "end", "counts": {"short_steps": 1}}], unreadable=0))
    assert "cache hits" not in tables(ReportInputs("run", run, "", {}, {}, {"user": {"rows": 5, "dim": 2}}, {}))
