"""What a checkpoint of a run keeps beside the state of training: the data it was trained on, and how far it is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hotrow.data.config import DataConfig
from hotrow.data.files import find_files
from hotrow.data.synthetic import SyntheticConfig
from hotrow.errors import InputError
from hotrow.run.daily import DaysDone


@dataclass(frozen=True, slots=True)
class TrainFile:
    """A file of `data.train`."""

    name: str
    bytes: int | None  # None where its filesystem does not tell

    @property
    def moved(self) -> tuple[str, int | None]:
        """What stays where its folder gets another name."""
        return self.name.rpartition("/")[2], self.bytes


@dataclass(slots=True)
class RunProgress:
    """Kept with every checkpoint of a run."""

    files: list[TrainFile] = field(default_factory=list)
    began: int = 0  # samples of the run that this one was started from
    days: DaysDone = field(default_factory=DaysDone)

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "RunProgress":
        """From what `document` gave; InputError where a checkpoint was saved without it."""
        try:
            return cls([TrainFile(**each) for each in about["files"]], about["began"], DaysDone.of(about["days"]))
        except (KeyError, TypeError):
            message = "--resume: the checkpoint does not say which data it was trained on"
            raise InputError(f"{message}: start a new run from it with --from RUN") from None

    def document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def train_files(data: DataConfig | SyntheticConfig, base: Path) -> list[TrainFile]:
    """The files that `data.train` names now."""
    if isinstance(data, SyntheticConfig):
        return []
    return [
        TrainFile(file.name, file.filesystem.get_file_info(file.path).size) for file in find_files(data.train, base)
    ]
