"""Templates that escape what they are given, data that cannot leave its element, and lines of bounded length."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from hotrow.obs.report.charts import POINTS_MOST, decades, thinned
from hotrow.obs.report.rendering import inline, render
from hotrow.printable import printable
from unit.obs.read_page import Page

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


HEADLINE, FIGURE = "obs/report/templates/headline.html", "obs/report/templates/figure.html"


@given(st.text())
def test_text_comes_back_as_it_was(text: str) -> None:
    """Whatever stands in it; what is no character to see is shown as an escape."""
    page = Page(render(HEADLINE, name=text, under="", figures=[], sentences=[]))
    assert page.text.partition("training report ")[2].split() == printable(text).split()
    assert [name for name, _ in page.elements] == ["header", "p", "h1", "p", "dl"]


@given(st.text())
def test_attributes_come_back_as_they_were(text: str) -> None:
    page = Page(render(FIGURE, title=text, figure={}, legend=[], note=None, wide=False, sentence=None))
    (plot,) = (attributes for name, attributes in page.elements if name == "div")
    assert plot == {"class": "plot", "role": "img", "aria-label": printable(text)}


def test_only_what_a_template_made_is_markup() -> None:
    made = render(FIGURE, title="<b>", sentence="a & b", wide=False)
    assert "<h3>&lt;b&gt;</h3>" in made
    assert made in render("obs/report/templates/predictions.html", why=None, split="<i>", figures=[], pictures=[made])


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="sentences"):
        render(HEADLINE, name="a", under="", figures=[])


@pytest.mark.parametrize("content", ["a</script>b", "a</SCRIPT b"])
def test_a_script_that_would_end_itself_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="would end it"):
        inline("script", content)


@given(JSON)
def test_data_of_a_figure_cannot_end_its_element(value: Any) -> None:
    given = {"text": "</script><!--", "value": value}
    html = render(FIGURE, title="t", figure=given, legend=[], note=None, wide=False, sentence=None)
    content = html.partition('<script type="application/json">')[2].partition("</script>")[0]
    assert "<" not in content
    assert json.loads(content) == given


def test_data_of_a_figure_is_json_that_a_browser_reads() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render(FIGURE, title="t", figure={"x": float("nan")}, legend=[], note=None, wide=False, sentence=None)


@pytest.mark.parametrize("length", [0, 1, POINTS_MOST, POINTS_MOST + 1, 5 * POINTS_MOST + 3])
def test_long_lines_are_thinned_by_means_and_keep_their_end(length: int) -> None:
    x, y = thinned(list(range(length)), [float(place % 10) for place in range(length)])
    assert len(x) == len(y) <= POINTS_MOST
    if length <= POINTS_MOST:
        assert x == list(range(length))
    else:
        assert x[-1] == length - 1
        assert sum(y) / len(y) == pytest.approx(4.5, abs=0.1)


@pytest.mark.parametrize(
    ("values", "ends"), [([1], (0, 1)), ([100, 294], (2, 3)), ([3, 1000], (0, 3)), ([1, 1001], (0, 4))]
)
def test_logarithmic_axes_go_from_power_to_power(values: list[float], ends: tuple[int, int]) -> None:
    low, high = decades("rows", values)["range"]
    assert (round(low), round(high)) == ends
    assert low < ends[0]
    assert high > ends[1]
