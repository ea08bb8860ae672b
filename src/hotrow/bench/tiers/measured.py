"""Runs the parts of `hotrow bench tiers`."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hotrow.bench.peers import Adapter
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.bench.tiers.capacity import measure_capacity
from hotrow.bench.tiers.options import measure_options
from hotrow.bench.tiers.plan import TiersPlan
from hotrow.bench.tiers.speed import measure_speed


def measure(
    plan: TiersPlan, parts: Sequence[str], folder: Path | None, watch: BenchProgress, adapters: Sequence[Adapter] = ()
) -> dict[str, Figures]:
    """The figures of each part. Files are made on the disk of `folder` and removed at the end of a part."""
    figures: dict[str, Figures] = {}
    for part in parts:
        with TemporaryDirectory(prefix="hotrow-bench-", dir=folder) as place:
            match part:
                case "speed":
                    figures[part] = measure_speed(plan, Path(place), watch, adapters)
                case "options":
                    figures[part] = measure_options(plan, Path(place), watch)
                case "cluster":
                    from hotrow.bench.tiers.cluster import measure_cluster  # the wire is an extra

                    figures[part] = measure_cluster(plan, Path(place), watch)
                case _:
                    figures[part] = measure_capacity(plan, Path(place), watch)
    return figures
