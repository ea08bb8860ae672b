"""The config that a newcomer starts from."""

from importlib.resources import files
from pathlib import Path

from hotrow.errors import ConfigError

NAME = "train.toml"


def starter_text() -> str:
    """A commented config: it works once its files and columns are those of somebody's data."""
    return (files("hotrow.run") / "starter.toml").read_text(encoding="utf-8")


def write_starter(folder: Path) -> Path:
    """folder/train.toml; the folder is made, but nothing that is there is written over."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(starter_text())
    except FileExistsError:
        if path.exists():
            raise ConfigError(f"{path}: is there already: name another folder, or move it away first") from None
        raise ConfigError(f"{folder}: is a file: name a folder") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from None
    return path
