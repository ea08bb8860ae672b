"""Baidu's Fig. 6 to 8 by arithmetic: the node of the text, the figures, and the picture."""

import xml.etree.ElementTree as ElementTree

import pytest

from hotrow.reproduce import kstep_picture, kstep_routes
from hotrow.reproduce.kstep_routes import PAIR_BYTES, paper_middlemen, paper_node


def test_the_node_is_the_one_of_the_text() -> None:
    """Section 1: 0 - 2 has twice the links of 1 - 3 and of 0 - 3. Section 3.2: 0 has none to 5, 6 and 7."""
    links = paper_node().links
    assert links[0][2] == 2 * links[1][3] == 2 * links[0][3]
    assert [target for target in range(1, 8) if not links[0][target]] == [5, 6, 7]
    assert all(sum(row) == 6 * 25 for row in links)
    assert all(links[one][other] == links[other][one] for one in range(8) for other in range(8))


def test_middlemen_are_those_of_figure_3() -> None:
    middlemen = paper_middlemen()
    assert [middlemen[0, target] for target in (5, 6, 7)] == [1, 2, 3]
    assert len(middlemen) == 24
    assert all(middleman in paper_node().candidates(pair) for pair, middleman in middlemen.items())


def test_figures_are_those_of_the_arithmetic() -> None:
    result = kstep_routes.run()
    seconds = {name: 1e9 * each / PAIR_BYTES for name, each in result["seconds"].items()}
    assert seconds["staged"] == pytest.approx(12 / 15.75 + 12 / 19.2 + 12 / 15.75)
    assert seconds["at_once"] == pytest.approx(12 / 15.75)
    assert seconds["paper"] == pytest.approx(4 / 25, rel=1e-4)
    assert seconds["balanced"] == pytest.approx(3 / 25, rel=1e-4)
    assert result["uplink_gbps"] == pytest.approx(12 / (4 / 25) * 0.1, rel=1e-4), "ten times the time of two phases"
    update, exchange = result["update_share"], result["saved"]["paper"]["staged"]
    assert exchange / (1 + update) == pytest.approx(0.75)
    for each in result["network"]:
        assert 1 - each["rdma_s"] / each["paper_host_s"] == pytest.approx(each["paper_saved"])
        assert each["paper_push_share"] * each["paper_saved"] == pytest.approx(0.54)
    assert all(each["holds"] for each in result["promises"])


def test_lines_and_picture_have_the_figures() -> None:
    result = kstep_routes.run()
    shown = "\n".join(kstep_routes.lines(result))
    assert "8.1  2.7 + 5.4" in shown
    assert "modelled, not measured" in shown
    drawn = kstep_picture.picture(result)
    texts = [
        "".join(each.itertext()) for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "8.1, 94 % less" in texts
    middlemen = result["plans"]["balanced"]["middlemen"]
    assert sum(each in map(str, range(8)) for each in texts) == len(middlemen) + 2 * 8
