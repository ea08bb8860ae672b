"""The numbers of a run as TensorBoard shows them, over samples: runs of different batch sizes can be compared.

tensorboardX writes in a thread of its own, which an OSError would end with a traceback; the queue before it would then
fill, and training wait for ever. So it writes to a file of ours that keeps the fault and takes no more.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.record_writer import register_writer_factory

from hotrow.disk import cannot_write, written
from hotrow.errors import FileError

FLUSH_S = 10  # a kill loses at most so much; the event log loses nothing
SCHEME = "hotrow-file"


class CurveFile:
    """A file that stops taking anything at its first fault."""

    def __init__(self, path: Path) -> None:
        self.fault: FileError | None = None
        self._path = path
        self._file = path.open("wb", buffering=0)

    def write(self, data: bytes) -> None:
        if self.fault is None:
            try:
                while data:
                    data = data[self._file.write(data) :]
            except OSError as error:
                self.fault = cannot_write(self._path, "a point of TensorBoard's curves", None, error)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self._file.close()


class CurveFiles:
    """Opens them for tensorboardX, and hands each to the TensorBoard whose it is."""

    def __init__(self) -> None:
        self._opened: dict[str, CurveFile] = {}

    def open(self, path: str) -> CurveFile:
        self._opened[path] = CurveFile(Path(path.removeprefix(f"{SCHEME}://")))
        return self._opened[path]

    def directory_check(self, path: str) -> None:
        Path(path.removeprefix(f"{SCHEME}://")).mkdir(parents=True, exist_ok=True)

    def take(self, suffix: str) -> CurveFile:
        """The file whose name ends in this; it is forgotten here."""
        return self._opened.pop(next(path for path in self._opened if path.endswith(suffix)))


_files = CurveFiles()
register_writer_factory(SCHEME, _files)


class TensorBoard:
    """Writes scalars into event files in a folder; every writer makes a file of its own there."""

    def __init__(self, folder: Path) -> None:
        unlike_others = f".{time.time_ns()}"  # tensorboardX names files by the second and would overwrite
        with written(folder, "TensorBoard's curves"):
            self._writer = SummaryWriter(
                f"{SCHEME}://{folder.absolute()}", flush_secs=FLUSH_S, filename_suffix=unlike_others
            )
        self._file = _files.take(unlike_others)

    @property
    def fault(self) -> FileError | None:
        """Why there are no further points, where that is so."""
        return self._file.fault

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
