"""The stages of a measurement on a terminal, or in a log file."""

from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hotrow.cli.screen import Screen


class StageBar:
    """A bar on a terminal, one line per stage in a log file; always on standard error."""

    def __init__(self) -> None:
        self._console = Screen(stderr=True)
        words = TextColumn("{task.description}")
        self._progress = Progress(
            words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=self._console, transient=True
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, label: str, total: int) -> None:
        if not self._console.is_terminal:
            self._console.print(label)
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(label, total=total)

    def tick(self) -> None:
        if self._task is not None:
            self._progress.advance(self._task)
