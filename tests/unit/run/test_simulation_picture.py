"""The picture of a simulation: one file that loads nothing, with everything drawn where it belongs."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hotrow.sim.study.config import SimulationConfig
from hotrow.sim.study.figures import figures
from hotrow.sim.study.outcome import Outcome
from hotrow.sim.study.picture import write_picture
from hotrow.sim.study.picture.drawing import AxisScale, TimeUnit, apart, round_up, short
from hotrow.sim.study.picture.lanes import window_s
from hotrow.sim.study.picture.lateness import binned
from hotrow.sim.study.picture.page import page, svg
from hotrow.staleness import Histogram
from simulations import TRAINED, config, outcomes

EVIL = "<script>alert(1)</script>&"
SVG = "{http://www.w3.org/2000/svg}"
Drawn = tuple[SimulationConfig, list[Outcome]]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    """Two modes, one of which switches, and one whose label tries to get out."""
    changing = {"name": "sync", "switches": [{"mode": "async", "at_s": 20.0}]}
    made = config(modes={EVIL: changing}, picture={"workers": 3})
    return made, list(outcomes(made, pictured=True).values())


def test_the_svg_is_well_formed_and_holds_a_line_a_lane_and_a_histogram_for_each_mode(drawn: Drawn) -> None:
    made, found = drawn
    root = ElementTree.fromstring(svg(made, found, "small"))
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert len(list(root.iter(f"{SVG}polyline"))) == 3
    assert sum("workers 0 to 2 of 4" in (text or "") for text in texts) == 3
    assert sum((text or "").startswith("mean of gradients") for text in texts) == 3
    assert f"{EVIL}: to async" in texts
    assert texts[0] == "small"


def test_lanes_lie_where_their_time_is(drawn: Drawn) -> None:
    made, found = drawn
    shown_s = window_s(found, None)
    assert shown_s == 12.0  # four steps of Sync, three seconds each; eight batches of a second are shorter
    root = ElementTree.fromstring(svg(made, found[:1], None))
    bars = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "compute" and each.get("y") == "46"]
    left, right = 76.0, 1080.0 - 176.0
    first = bars[0]
    assert float(first.get("x", "")) == left
    assert float(first.get("width", "")) == pytest.approx((right - left) * 3 / shown_s, abs=1)  # worker 0 takes 3 s
    short = made.model_copy(update={"picture": made.picture.model_copy(update={"seconds": 4.0})})
    root = ElementTree.fromstring(svg(short, found[:1], None))
    bars = [each for each in root.iter(f"{SVG}rect") if each.get("class") in ("compute", "wait")]
    ends = [float(bar.get("x", "")) + float(bar.get("width", "")) for bar in bars]
    assert max(ends) == pytest.approx(right, abs=0.7)  # what goes on is cut there


def test_a_window_is_as_long_as_asked_and_never_longer_than_lanes_are_known(drawn: Drawn) -> None:
    _, found = drawn
    assert window_s(found, 5.0) == 5.0
    longest = max(lane.end_s for each in found for lane in each.result.lanes)
    assert window_s(found, 1e9) == longest
    assert window_s([], None) is None


def test_without_lanes_and_steps_there_is_still_a_picture() -> None:
    crashes = [{"worker": worker, "at_s": 0.5} for worker in range(4)]
    made = config(cluster={"faults": {"crashes": crashes}})
    text = svg(made, list(outcomes(made).values()), "nobody")
    ElementTree.fromstring(text)
    assert "Activity of the first workers" not in text
    assert "How late" not in text


@pytest.mark.parametrize("suffix", [".html", ".svg"])
def test_a_file_loads_nothing_and_a_label_stays_a_text(drawn: Drawn, tmp_path: Path, suffix: str) -> None:
    made, found = drawn
    path = tmp_path / f"picture{suffix}"
    write_picture(path, made, found, EVIL)
    text = path.read_text()
    assert "<script" not in text
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+", text))
    assert addresses <= {"http://www.w3.org"}  # the name of SVG, which nobody fetches


def test_the_page_has_figures_remarks_decisions_and_settings() -> None:
    made = config(run={"samples": 12_000}, modes={"auto": {"minimum_stay": 5}, "async": {}})
    found = list(outcomes(made, pictured=True).values())
    text = page(made, found, "small")
    assert "<h1>small</h1>" in text
    assert "async: async applies 10 samples a step" in text
    assert "to GBA: " in text
    assert "[cluster.speeds]" in text
    for name, _ in figures(found):
        assert f">{name}</td>" in text


def test_ids_are_drawn_beside_gradients() -> None:
    made = config(TRAINED, modes={"gba": {}})
    text = svg(made, list(outcomes(made, "gba").values()), None)
    assert "lighter: of ids" in text
    assert "ids: " in text


def test_the_load_of_the_day_is_a_strip() -> None:
    speeds = {"sample_s": 0.1, "stragglers": [{"share": 0.5, "with_load": True, "every_s": 10}], "load": {}}
    made = config(cluster={"speeds": speeds})
    assert "load of the day" in svg(made, list(outcomes(made, "sync").values()), None)
    assert "load of the day" not in svg(config(), list(outcomes(config(), "sync").values()), None)


@pytest.mark.parametrize(("value", "rounded"), [(1.0, 1.0), (1.1, 2.0), (2.1, 5.0), (5.1, 10.0), (0.03, 0.05)])
def test_steps_of_an_axis_are_round(value: float, rounded: float) -> None:
    assert round_up(value) == pytest.approx(rounded)


def test_ticks_are_round_numbers_inside() -> None:
    assert AxisScale(0, 137, 0, 1).ticks(8) == [0, 20, 40, 60, 80, 100, 120]
    assert AxisScale(0, 1, 10, 20)(0.5) == 15


def test_names_are_pushed_apart_and_stay_inside() -> None:
    assert apart([10, 11, 50], 5, 0, 100) == [10, 15, 50]
    assert apart([98, 99], 5, 0, 100) == [95, 100]
    assert apart([50, 11, 10], 5, 0, 100) == [50, 15, 10]


UNITS = [(20_000, "hours"), (300, "minutes"), (100, "seconds"), (0.1, "milliseconds")]


@pytest.mark.parametrize(("span_s", "name"), UNITS)
def test_times_get_the_unit_that_people_would_take(span_s: float, name: str) -> None:
    assert TimeUnit.of(span_s).name == name


@pytest.mark.parametrize(("value", "text"), [(1_234_000, "1.23 M"), (999_900, "1 M"), (12, "12"), (0, "0")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_bins_hold_every_value_once() -> None:
    histogram = Histogram({0: 1, 1: 2, 4: 3, 5: 4})
    assert binned(histogram, 1) == {0: 0.1, 1: 0.2, 4: 0.3, 5: 0.4}
    assert binned(histogram, 5) == {0: pytest.approx(0.6), 5: 0.4}


def test_figures_have_a_row_where_somebody_has_something_to_tell() -> None:
    made = config(modes={"hop": {"name": "backup_workers", "backups": 1}, "auto": {}})
    rows = dict(figures(list(outcomes(made).values())))
    assert rows["mode"] == ["sync", "gba", "backup_workers", "auto"]
    assert rows["its setting"] == [None, "tolerance 4", "backups 1", "tolerance 4"]
    assert rows["beside sync"][0] == "x 1.00"
    assert rows["global QPS"][0] == "13 ± 0"
    assert rows["samples applied"][0] == "3,000"
    late = rows["batches late"]
    assert (late[0], late[1]) == (None, None)
    assert late[2] is not None
    assert int(late[2]) * 10 == int((rows["samples late"][2] or "").replace(",", ""))
    assert rows["switches"][:3] == [None, None, None]
    assert rows["gradient staleness"][0] == "0.00 (max 0)"
    assert "AUC" not in rows
    assert "batches decayed" not in rows
    assert "batches lost" not in rows


def test_weights_of_late_batches_are_told_by_what_they_did() -> None:
    late = {"decay": {"name": "power", "reference": 2.0, "exponent": 1.0}}
    made = config(modes={"gba": {"tolerance": 0}, "async": {"staleness": late}})
    found = outcomes(made)
    rows = dict(figures(list(found.values())))
    counted = {label: each.result.statistics for label, each in found.items()}
    assert rows["batches of weight 0"] == [None, f"{counted['gba'].zero_weight:,}", None]
    assert rows["batches decayed"] == [None, None, f"{counted['async'].decayed:,}"]


def test_weights_of_late_ids_are_told_beside_those_of_batches() -> None:
    cut, power = {"name": "cutoff", "tolerance": 0}, {"name": "power", "reference": 1.0, "exponent": 1.0}
    modes = {
        "cut": {"name": "async", "staleness": {"decay": cut}},
        "power": {"name": "async", "staleness": {"decay": power, "groups": "embedding", "by": "version"}},
    }
    found = outcomes(config(TRAINED, modes=modes), "sync", "cut", "power")
    rows = dict(figures(list(found.values())))
    counted = {label: each.result.statistics for label, each in found.items()}
    assert counted["cut"].ids_zero_weight > 0
    assert counted["power"].ids_decayed > 0
    assert counted["power"].decayed == 0, "no batch was, as a whole"
    assert rows["ids of weight 0"] == [None, f"{counted['cut'].ids_zero_weight:,}", None]
    assert rows["ids decayed"] == [None, None, f"{counted['power'].ids_decayed:,}"]
