"""Miss rate over the size of the cache as a picture."""

from collections.abc import Sequence

from hotrow.bench.cache.policies import IDEAL
from hotrow.bench.curve import Point
from hotrow.bench.picture import Chart, Series, draw

NAMES = {
    "lru": ("reads", "LRU"),
    "lfu": ("find", "LFU"),
    "light_lfu": ("limit", "light LFU"),
    "ahead": ("step", "ahead"),
    IDEAL: ("ideal", "most popular ids"),
}


def miss_rates_svg(points: Sequence[Point], subtitle: str) -> str:
    """A line for each policy, and one for a cache that always holds the most popular ids."""
    series = tuple(Series(key, look, name) for key, (look, name) in NAMES.items() if key in points[0])
    chart = Chart(
        "Lookups that miss, by the size of the cache",
        "size",
        "% of the rows in the cache",
        series,
        ticks_at_points=True,
        up_name="% of the lookups miss",
    )
    return draw(chart, points, subtitle)
