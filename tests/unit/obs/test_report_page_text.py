"""The page as text: what the folder holds is on it, what is missing is told at its place, and text stays text."""

import json
import re
from base64 import b64encode
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from hotrow.errors import InputError
from hotrow.obs.events import EventLog, Events
from hotrow.obs.report import write_report
from hotrow.obs.report.curves import curves
from hotrow.obs.report.folder import ReportInputs
from hotrow.obs.report.headline import header
from hotrow.obs.report.modes import modes
from hotrow.obs.report.quality import quality
from hotrow.obs.report.run import RunRecord, tell
from hotrow.obs.report.tables import tables
from hotrow.obs.report.trouble import counted, trouble
from unit.obs.made_up_run import Shape, write_run
from unit.obs.read_page import Page

EVIL = (
    """<script>document.title = 'taken'</script><img src="http://elsewhere.invalid/x.png" onerror=alert(1)>' & --ink"""
)
FILES = ("events.jsonl", "config.toml", "machine.json", "evaluation.json", "tables.json")


def page_of(folder: Path) -> Page:
    return Page(write_report(folder).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = write_run(tmp_path_factory.mktemp("run"), Shape(tables=("user", "item"), days=4, warnings=("slow disk",)))
    return page_of(folder)


def test_a_whole_folder_shows_every_part(whole: Page) -> None:
    assert list(whole.figures) == [
        "Loss", "AUC", "Calibration over samples", "Samples per second", "Waiting for data", "AUC day by day",
        "ROC curve", "Calibration", "Rows over the run", "Memory", "Skew", "Updates per row",
    ]  # fmt: skip
    headings = ("Curves", "Predictions", "Mode and staleness", "Tables", "Trouble", "Configuration", "Machine")
    assert [name for name in headings if name not in whole.text] == []
    assert "is not in the run folder" not in whole.text
    for shown in ("monday", "15 November 2025", "epochs done", "Test AUC", "41.2 k", "slow disk", "[tables.default]"):
        assert shown in whole.text


@pytest.mark.parametrize("word", ["norm. entropy: ", "Short steps: ", "turned away: "])
def test_words_of_the_page_that_are_not_common_are_explained(word: str, whole: Page) -> None:
    assert word in whole.text


def test_figures_hold_the_numbers_of_the_folder(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    page = page_of(folder)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    progress = [event for event in events if event["kind"] == "progress"]
    training, valid, test = page.figures["Loss"]["data"]
    assert training["x"] == [event["samples"] for event in progress]
    assert training["y"] == [event["loss"] for event in progress]
    checks = [event for event in events if event["kind"] == "evaluation" and event["split"] == "valid"]
    assert valid["y"] == [event["metrics"]["logloss"] for event in checks]
    assert len(test["x"]) == 1
    pictures = json.loads((folder / "evaluation.json").read_text())["test"]
    assert page.figures["ROC curve"]["data"][0]["y"] == [point[1] for point in pictures["roc"]]
    assert page.figures["Calibration"]["data"][0]["x"] == [point["predicted"] for point in pictures["calibration"]]
    skew = json.loads((folder / "tables.json").read_text())["default"]["skew"]
    assert page.figures["Skew"]["data"][0]["y"] == [times for _, times in skew]
    assert sum(page.figures["Updates per row"]["data"][0]["y"]) == pytest.approx(1)


def test_calibration_is_drawn_over_samples_and_the_error_of_a_sketch_is_told_with_its_auc(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    exact = page_of(folder)
    assert "±" not in exact.text
    log = folder / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
        if event["kind"] == "progress":
            event |= {"calibration": 1.01, "auc_error": 6e-5}
        if event["kind"] == "evaluation":
            event["auc_error"] = 3e-5
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    document = json.loads((folder / "evaluation.json").read_text())
    document["test"]["auc_error"] = 3e-5
    (folder / "evaluation.json").write_text(json.dumps(document))
    page = page_of(folder)
    training, valid, test = page.figures["Calibration over samples"]["data"]
    assert set(training["y"]) == {1.01}
    assert valid["y"] == [event["metrics"]["calibration"] for event in events if event.get("split") == "valid"]
    assert len(test["x"]) == 1
    assert "no AUC is wrong by more than 6e-05" in page.text
    evaluations = sum(event["kind"] == "evaluation" for event in events)
    assert page.text.count("±3e-05") == evaluations + 1, "in the table, and beside the ROC curve"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [None, '{"test": {"roc', "[]"])
def test_each_missing_or_damaged_file_is_told_and_the_rest_stays(
    name: str, content: str | None, tmp_path: Path
) -> None:
    folder = write_run(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    page = page_of(folder)
    if content is None:
        assert f"{name} is not in the run folder." in page.text
    elif name.endswith(".json"):
        assert re.search(rf"{name} (is damaged and could not be read|holds no JSON object)", page.text)
    assert ("Loss" in page.figures) == (name != "events.jsonl")
    assert ("ROC curve" in page.figures) == (name != "evaluation.json")
    assert ("Skew" in page.figures) == (name != "tables.json")


def test_an_empty_folder_gives_a_page_of_sentences(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert page.figures == {}
    assert tmp_path.name in page.text
    assert [name for name in FILES if f"{name} is not in the run folder." not in page.text] == []


def test_an_unfinished_run_says_so_and_shows_its_tables_from_the_events(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Shape(ended=False))
    (folder / "tables.json").unlink()
    page = page_of(folder)
    assert "The run has not written its end" in page.text
    assert "Validation AUC" in page.text
    assert "The figures are those after 600,000 samples." in page.text
    assert "Memory" in page.figures


def test_trouble_is_counted_also_where_there_is_none(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Shape(warnings=("the loss is 12",)))
    section = page_of(folder).text.partition("Counted, and 0: ")
    assert section[2].startswith(
        "malformed lines, refused gradients, reports with numbers that are not finite, unreadable"
    )
    assert re.search(r"Warnings +1 +Short steps +3 *$", section[0]), "only what is not 0 has a cell"


def test_the_short_step_that_ends_an_epoch_is_no_trouble() -> None:
    counts = {"malformed_lines": 0, "short_steps": 2}
    for epochs, shown in ((1, True), (2, False)):
        found = counted(RunRecord(end={"counts": counts, "epochs": epochs}))
        assert ("Short steps" in found) is shown


def test_a_flat_line_is_a_full_table_only_where_rows_were_evicted(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    assert "A line flattens as the data repeat ids that have a row already." in page_of(folder).text
    path = folder / "tables.json"
    tables = json.loads(path.read_text())
    assert any(table["evicted"] for table in tables.values())
    assert "a flat line is a full table" in page_of(folder).text
    path.write_text(json.dumps({name: {**table, "evicted": 0} for name, table in tables.items()}))
    assert "a flat line is a full table" not in page_of(folder).text


def test_a_run_that_ends_without_counts_says_that_they_are_unknown(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Shape(ended=False))
    with closing(EventLog(folder)) as log:
        log.write("end", stopped="interrupted", samples=5)
    page = page_of(folder)
    assert "interrupted" in page.text
    assert "has not written its counts" in page.text
    assert "The run has not written its end" not in page.text


def test_epochs_are_counted_from_one_and_told_of_validations_alone(whole: Page) -> None:
    assert "Best validation AUC: 0.8034, in epoch 2." in whole.text
    rows = re.findall(r"(valid|test) +(\d+|–) +(–|day \d)", whole.text)  # noqa: RUF001  # the dash of the page
    assert rows[:3] == [("valid", "1", "–"), ("valid", "2", "–"), ("valid", "3", "–")]  # noqa: RUF001
    assert rows[3:] == [("test", "–", f"day {day}") for day in range(4)]  # noqa: RUF001


def test_bars_of_updates_tell_their_span_with_both_ends(whole: Page) -> None:
    figure = whole.figures["Updates per row"]
    told = [span for _, span in figure["data"][0]["customdata"]]
    assert told[:4] == ["0 updates", "1 update", "2 to 3 updates", "4 to 7 updates"]
    assert figure["layout"]["xaxis"]["ticktext"][:3] == ["0", "2", "8"]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("evil")
    shape = Shape(name=EVIL, tables=(EVIL, "--ink"), malformed=(EVIL,), warnings=(EVIL,), workers=4, said=(EVIL,))
    write_run(folder, shape)
    (folder / "config.toml").write_text(f"# {EVIL}\n[{EVIL}]\nname = '{EVIL}'\n</pre>{EVIL}")
    (folder / "machine.json").write_text(json.dumps({"cpu": EVIL, EVIL: [EVIL]}))
    return page_of(folder)


def test_nothing_from_the_folder_becomes_markup(attacked: Page) -> None:
    names = {name for name, _ in attacked.elements}
    assert "img" not in names
    assert len(attacked.scripts) == 2
    assert not any("'taken'" in script for script in attacked.scripts)
    assert attacked.text.count(EVIL) >= 8
    assert not any(name.startswith("on") for _, attributes in attacked.elements for name in attributes)


def test_names_in_figures_are_escaped_for_plotly_too(attacked: Page) -> None:
    drawn = [json.dumps(figure) for figure in attacked.figures.values()]
    assert [text for text in drawn if "<script" in text or "<img" in text] == []
    assert attacked.figures["Skew"]["data"][1]["name"] in ("--ink", EVIL.replace("<", "&lt;"))


def test_the_page_refers_to_nothing_outside(whole: Page, attacked: Page) -> None:
    for page in (whole, attacked):
        for _, attributes in page.elements:
            assert attributes.get("src") is None
            assert (attributes.get("href") or "#").startswith(("#", "data:,"))


def test_the_policy_allows_the_page_s_own_scripts_and_no_address(whole: Page) -> None:
    (policy,) = [a["content"] for _, a in whole.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    hashes = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in whole.scripts]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == hashes
    assert "http" not in policy


def test_text_that_is_no_unicode_does_not_stop_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Shape(malformed=("cut \udce9 here",)))
    assert r"cut \udce9 here" in page_of(folder).text


def test_the_page_is_written_whole_and_again(tmp_path: Path) -> None:
    write_report(write_run(tmp_path))
    before = set(tmp_path.iterdir())
    (tmp_path / "report.html").write_text("old")
    assert write_report(tmp_path).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert set(tmp_path.iterdir()) == before


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        write_report(tmp_path / "none")


KEYS = st.sampled_from(
    ["test", "valid", "roc", "calibration", "metrics", "auc", "predicted", "observed", "count", "skew", "updates",
     "rows", "bytes", "tables", "samples", "day", "split", "loss", "best", "value", "counts", "malformed", "text", "a",
     "mode", "before", "sentence", "workers", "gradient", "ids", "values", "mean", "dropped"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
KINDS = st.sampled_from(
    ["start", "progress", "evaluation", "tables", "malformed", "warning", "end", "mode", "remark", "statistics"]
)
EVENTS = st.lists(st.tuples(KINDS, st.dictionaries(KEYS, JSON, max_size=6)), max_size=6)


@given(EVENTS, st.dictionaries(KEYS, JSON, max_size=4), st.dictionaries(KEYS, JSON, max_size=4))
def test_whatever_json_lies_in_the_folder_a_page_comes_out(
    events: list[tuple[str, dict[str, Any]]], evaluation: dict[str, Any], found: dict[str, Any]
) -> None:
    run = tell(Events([{**fields, "time": 1, "kind": kind} for kind, fields in events], unreadable=0))
    folder = ReportInputs("run", run, "", {}, evaluation, found, {})
    for html in (header(folder), curves(run), quality(folder), modes(run), tables(folder), trouble(folder)):
        assert isinstance(html, Markup)
