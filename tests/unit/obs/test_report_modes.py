"""The page's section on the mode: what was at work when, how late gradients were; no picture where none was."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hotrow.obs.events import EventLog, Events
from hotrow.obs.report import write_report
from hotrow.obs.report.modes import BARS_MOST, modes
from hotrow.obs.report.run import Record, tell
from hotrow.staleness import Histogram
from unit.obs.made_up_run import Shape, write_run
from unit.obs.read_page import Page

NONE = Histogram().document()


def event(kind: str, **fields: Any) -> Record:
    return {"time": 1.0, "kind": kind, **fields}


def section(*events: Record) -> Page:
    return Page(modes(tell(Events(list(events), unreadable=0))))


def begun(**fields: Any) -> Record:
    facts = {"workers": 4, "local_batch": 128, "global_batch": 512, "chosen": "gba", "before": None}
    return event("mode", **{"samples": 0, "mode": "gba", **facts, **fields})


def late(**histograms: dict[int, int]) -> Record:
    kinds = {kind: Histogram(counts).document() for kind, counts in histograms.items()}
    return event("statistics", samples=900, granted=12, applied=11, short_steps=1, **kinds)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = write_run(tmp_path_factory.mktemp("run"), Shape(workers=4, said=("steps are short",)))
    return Page(write_report(folder).read_text(encoding="utf-8"))


def test_modes_are_drawn_as_stretches_of_samples(page: Page) -> None:
    sync, gba = page.figures["Modes as the run went"]["data"]
    assert [(sync["name"], sync["base"], sync["x"]), (gba["name"], gba["base"], gba["x"])] == [
        ("sync", [0, 300_000], [150_000, 300_000]),
        ("gba", [150_000], [150_000]),
    ]
    assert "The mode was changed 2 times." in page.text
    assert "Trained in sync and gba, chosen as it went, by 4 workers: batches of 1,024 samples each, 4,096" in page.text


def test_why_it_was_changed_and_what_was_said_stand_in_their_order(page: Page) -> None:
    said = page.text[page.text.index("Said about the mode") :]
    told = re.findall(r"([\d,]+) samples : (.*?)(?= +[\d,]+ samples :| +Tables)", said)
    assert told == [
        ("0", "steps are short"),
        ("150,000", "from sync to gba: 9,876 samples/s predicted"),
        ("300,000", "from gba to sync"),
    ]


def test_a_run_on_a_cluster_names_its_engine_and_roles_as_they_were_last() -> None:
    four = {"shard 0": "a", "shard 1": "b", "trainer 0": "a", "trainer 1": "b"}
    first = event("start", engine="ray", roles=four), begun()
    told = "by 4 workers on ray (2 shards and 2 trainers): batches of 128"
    assert told in section(*first).text
    again = event("start", resumed=True, engine="ray", roles={"trainer 0": "a"}), begun()
    assert "by 4 workers on ray (1 trainer): batches of 128" in section(*first, *again).text
    damaged: tuple[Any, ...] = (None, {}, [], "shard 0")
    for roles in damaged:
        assert "by 4 workers: batches" in section(event("start", engine="local", roles=roles), begun()).text


def test_one_mode_is_a_sentence_and_no_picture() -> None:
    found = section(begun(), late(gradient={0: 3, 1: 1}, data={0: 4}))
    assert list(found.figures) == ["Staleness of dense gradients"]
    assert "Trained in gba by 4 workers: batches of 128 samples each, 512 in a global batch." in found.text


def test_histograms_are_parts_of_all_with_their_means() -> None:
    found = section(begun(), late(gradient={0: 3, 2: 1}, data={0: 4}, ids={1: 10}, rows={}))
    dense, rows = found.figures["Staleness of dense gradients"]["data"], found.figures["Staleness of rows"]["data"]
    assert [(trace["name"], trace["x"], trace["y"]) for trace in dense] == [
        ("since the pull", [0, 2], [0.75, 0.25]),
        ("behind the token", [0], [1.0]),
    ]
    assert [(trace["x"], trace["y"]) for trace in rows] == [([1], [1.0])]
    assert "Mean and largest: since the pull 0.50 and 2; behind the token 0.00 and 0." in found.text


@pytest.mark.parametrize(("largest", "span"), [(BARS_MOST - 1, 1), (BARS_MOST, 2), (10 * BARS_MOST, 11)])
def test_many_values_share_bars(largest: int, span: int) -> None:
    found = section(begun(), late(gradient=dict.fromkeys(range(largest + 1), 1)))
    (trace,) = found.figures["Staleness of dense gradients"]["data"]
    assert trace["x"] == list(range(0, largest + 1, span))
    assert len(trace["x"]) <= BARS_MOST
    assert sum(trace["y"]) == pytest.approx(1)
    assert trace["customdata"][0] == ("0" if span == 1 else f"0 to {span - 1}")


def test_what_was_never_late_is_a_sentence() -> None:
    found = section(begun(mode="sync", workers=1), late(gradient={0: 9}, data={0: 9}, ids={0: 70}))
    assert found.figures == {}
    assert "Never late: dense gradients and rows." in found.text
    hybrid = section(begun(mode="hybrid"), late(gradient={0: 9}, rows={2: 9}))
    assert list(hybrid.figures) == ["Staleness of rows"]
    assert "Never late: dense gradients." in hybrid.text


def test_counts_that_are_zero_are_left_out_but_for_the_usual_ones() -> None:
    told = event("statistics", samples=9, granted=12, applied=11, short_steps=0, decayed=2, dropped={"late": 3})
    found = section(begun(), {**told, "zero_weight": 0, "gradient": NONE})
    counts = dict(re.findall(r"([A-Z][a-z0 ]+?) +(\d+)(?= |$)", found.text[found.text.index("Batches begun") :]))
    expected = {"Batches begun": "12", "Batches applied": "11", "Short steps": "0"}
    assert counts == {**expected, "Decayed gradients": "2", "Dropped as late": "3"}


def test_a_run_that_has_not_come_so_far_says_so() -> None:
    assert "The run has not written its mode." in section().text
    assert "has not written yet what became of its batches." in section(begun()).text
    assert "Trained in gba." in section(event("mode", samples=0, mode="gba")).text


def test_a_resumed_run_takes_back_the_switch_that_it_had_not_saved(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Shape(workers=4, ended=False))
    with closing(EventLog(folder)) as log:
        log.write("start", run="monday", resumed=True)
        log.write("mode", samples=200_000, before=None, mode="async", chosen="async", workers=2)
        log.write("progress", samples=210_000)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    traces = page.figures["Modes as the run went"]["data"]
    assert [(trace["name"], trace["base"], trace["x"]) for trace in traces] == [
        ("sync", [0], [150_000]),
        ("gba", [150_000], [50_000]),
        ("async", [200_000], [10_000]),
    ]
    assert "Counts are those since the run was resumed." in page.text
