"""The config that `hotrow new` writes."""

from importlib.resources import files
from pathlib import Path

from hotrow.errors import ConfigError
from hotrow.sizes import fits_folder_name

NAME = "train.toml"
UNNAMED = '# name = "first"'  # the line of the starter that shows run.name


def starter_text() -> str:
    """A commented config: it trains once its files and columns are those of the user's data."""
    return (files("hotrow.run") / "starter.toml").read_text(encoding="utf-8")


def named_starter(folder: Path) -> str:
    """The same with run.name set to the folder's name, where a run can have that name."""
    name = folder.absolute().name
    return starter_text().replace(UNNAMED, f'name = "{name}"', 1) if fits_folder_name(name) else starter_text()


def write_starter(folder: Path) -> Path:
    """Write folder/train.toml and make the folder; an existing file is refused."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(named_starter(folder))
    except FileExistsError:
        if path.exists():
            raise ConfigError(f"{path}: exists: name another folder, or move the file away first") from None
        raise ConfigError(f"{folder}: is a file: name a folder") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from None
    return path
