"""What all pictures of the page share: the frame around a Plotly figure, its axes, its colours.

Colours are names of the page's style (`--blue`); the page's script puts in the values of the reader's scheme.
"""

from collections.abc import Iterable, Sequence
from html import escape, unescape
from math import ceil, floor, log10
from typing import Any, TypeAlias

from markupsafe import Markup

from hotrow.obs.report.rendering import render

Trace: TypeAlias = dict[str, Any]

SERIES = ("--blue", "--orange", "--green", "--purple", "--red", "--teal", "--brown", "--grey")
TEMPLATE = "obs/report/templates/figure.html"
POINTS_MOST = 1000  # of a line; more cannot be seen and make the page heavy
NAME_MOST = 16  # letters of a name beside an axis
LAYOUT = {
    "showlegend": False,
    "margin": {"l": 8, "r": 20, "t": 10, "b": 8},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "hovermode": "closest",
    "hoverlabel": {"bgcolor": "--paper", "bordercolor": "--line", "font": {"color": "--ink"}},
}


def chart(title: str, note: str | None, traces: Sequence[Trace], *, wide: bool = False, **layout: Any) -> Markup:
    """A picture with its title and its lines' names above and its note below."""
    figure = {"data": list(traces), "layout": {**LAYOUT, **layout}}
    legend = [_entry(trace) for trace in traces] if len(traces) > 1 else []
    return render(TEMPLATE, title=title, note=note, figure=figure, legend=legend, wide=wide, sentence=None)


def missing(title: str, sentence: str) -> Markup:
    """What stands at the place of a picture that cannot be drawn."""
    return render(TEMPLATE, title=title, sentence=sentence, wide=False)


def line(name: str, x: Sequence[Any], y: Sequence[float], color: str, **more: Any) -> Trace:
    """A plain line; long ones are thinned."""
    across, up = thinned(x, y)
    look = {"color": color, "width": 1.75}
    return {"type": "scatter", "mode": "lines", "name": plain(name), "x": across, "y": up, "line": look, **more}


def points(name: str, x: Sequence[Any], y: Sequence[float], color: str, **more: Any) -> Trace:
    """Marks joined by a thin line."""
    look = {"line": {"color": color, "width": 1.5}, "marker": {"color": color, "size": 8}}
    return {"type": "scatter", "mode": "lines+markers", "name": plain(name), "x": list(x), "y": list(y), **look, **more}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with few ticks and a quiet grid."""
    return {
        "title": {"text": plain(title), "standoff": 8, "font": {"color": "--soft", "size": 12}},
        "color": "--soft",
        "gridcolor": "--line",
        "linecolor": "--line",
        "zeroline": False,
        "automargin": True,
        "nticks": 6,
        **more,
    }


def samples_axis() -> dict[str, Any]:
    """Samples across, as 2M."""
    return axis("samples trained", tickformat="~s", rangemode="tozero", showgrid=False, hoverformat=",d")


def decades(title: str, values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis from one power of ten to another, so that even a narrow range has two ticks."""
    known = [log10(value) for value in values]
    low, high = floor(min(known)), ceil(max(known))
    ends = [low - 0.05, max(high, low + 1) + 0.05]
    return axis(title, type="log", range=ends, dtick=1, exponentformat="power")


def cut(name: str) -> str:
    """A name that fits beside an axis."""
    return plain(name if len(name) <= NAME_MOST else f"{name[: NAME_MOST - 1]}…")


def plain(text: str) -> str:
    """A text that Plotly shows as it is: it would take tags for markup."""
    return escape(text)


def thinned(x: Sequence[Any], y: Sequence[float]) -> tuple[list[Any], list[float]]:
    """At most POINTS_MOST points: each the mean of a few neighbours, at the place of the last of them."""
    each = -(-len(x) // POINTS_MOST)
    if each <= 1:
        return list(x), list(y)
    pieces = [slice(start, start + each) for start in range(0, len(x), each)]
    return [x[piece][-1] for piece in pieces], [sum(y[piece]) / len(y[piece]) for piece in pieces]


def _entry(trace: Trace) -> tuple[str, str]:
    """A name and its colour, in HTML: Plotly's own legend takes the room of the picture where names are long."""
    look = trace.get("line") or trace["marker"]
    return unescape(trace["name"]), look["color"]
