"""The numbers of a run as TensorBoard shows them, over samples: runs of different batch sizes can be compared."""

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter

FLUSH_S = 10  # a kill loses at most so much; the event log loses nothing


class TensorBoard:
    """Writes scalars into event files in a folder; every writer makes a file of its own there."""

    def __init__(self, folder: Path) -> None:
        unlike_others = f".{time.time_ns()}"  # tensorboardX names files by the second and would overwrite
        self._writer = SummaryWriter(str(folder), flush_secs=FLUSH_S, filename_suffix=unlike_others)

    def write(self, samples: int, values: Mapping[str, float | None]) -> None:
        """Put values at `samples`; None is no value. `table/rows{table=user}` is shown as `table/rows/user`."""
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(tag(name), value, samples)

    def close(self) -> None:
        self._writer.close()


def tag(series: str) -> str:
    """The name under which TensorBoard groups a series: its labels' values become parts of the path."""
    name, _, labels = series.removesuffix("}").partition("{")
    values = [label.partition("=")[2] for label in labels.split(",") if label]
    return "/".join([name, *values])
