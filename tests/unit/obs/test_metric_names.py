"""The list of metrics: complete, spelled one way, and the same in the documentation."""

import re
from pathlib import Path

import pytest

from hotrow.metrics import Scores
from hotrow.obs.names import ALL, AREAS, area, markdown, series

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_page_of_the_documentation_is_made_from_the_list() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m hotrow.obs.names > docs/metrics.md"


def test_every_metric_is_on_the_page() -> None:
    assert [name for name in ALL if f"| `{name}` |" not in markdown()] == []


@pytest.mark.parametrize("name", ALL)
def test_names_units_and_meanings_are_complete(name: str) -> None:
    metric = ALL[name]
    assert metric.name == name
    assert re.fullmatch(r"[a-z]+/[a-z][a-z0-9_]*", name)
    assert area(name) in AREAS
    assert metric.unit
    assert metric.help.endswith(".")
    assert "|" not in metric.help


def test_every_figure_of_an_evaluation_has_a_name() -> None:
    scores = Scores()
    scores.add([0, 1], [0.0, 1.0], [3, 3])
    assert [figure for figure in scores.metrics() if f"evaluation/{figure}" not in ALL] == []


def test_a_series_is_told_by_its_labels_in_one_order() -> None:
    assert series("table/rows", {}) == "table/rows"
    assert series("table/rows", {"table": "user"}) == "table/rows{table=user}"
    assert series("a/b", {"y": "2", "x": "1"}) == series("a/b", {"x": "1", "y": "2"}) == "a/b{x=1,y=2}"
