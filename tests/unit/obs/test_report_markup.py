"""Markup that is escaped by construction, data that cannot leave its element, and lines of bounded length."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.obs.report.charts import POINTS_MOST, decades, thinned
from hotrow.obs.report.markup import data, join, raw, tag
from hotrow.printable import printable
from unit.obs.read_page import Page

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.text())
def test_text_and_attributes_come_back_as_they_were(text: str) -> None:
    """Whatever stands in it; what is no character to see is shown as an escape."""
    page = Page(tag("p", text, title=text))
    assert page.text.replace(" ", "") in ("", printable(text).replace(" ", ""))
    assert page.elements[0][0] == "p"
    assert len(page.elements) == 1


def test_only_what_a_tag_made_is_markup() -> None:
    assert tag("p", "<b>", tag("b", "x"), None, class_="a&b", id=None) == '<p class="a&amp;b">&lt;b&gt;<b>x</b></p>'
    assert join(["a<", tag("br")]) == "a&lt;<br>"
    assert tag("meta", http_equiv="x") == '<meta http-equiv="x">'


@pytest.mark.parametrize("content", ["a</script>b", "a</SCRIPT b"])
def test_a_script_that_would_end_itself_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="would end it"):
        raw("script", content)


@given(JSON)
def test_data_of_a_figure_cannot_end_its_element(value: Any) -> None:
    html = data({"text": "</script><!--", "value": value})
    assert html.count("<") == 2
    content = html[html.index(">") + 1 : html.rindex("<")]
    assert json.loads(content) == {"text": "</script><!--", "value": value}


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
