"""Simulations by the name of a file, or of a preset that comes with the package."""

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from hotrow.errors import ConfigError
from hotrow.run.config_file import anchored_data, anchored_name, set_field
from hotrow.sim.study.config import SimulationConfig, check_whole
from hotrow.spec import SettingsError, sentence

PRESETS = files("hotrow.sim.study") / "presets"


def preset_names() -> list[str]:
    """The names of all presets."""
    return sorted(each.name.removesuffix(".toml") for each in PRESETS.iterdir() if each.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """The file of a preset."""
    if name not in preset_names():
        raise ConfigError(f"{name}: {_no_such(name)}")
    return (PRESETS / f"{name}.toml").read_text(encoding="utf-8")


def preset_title(name: str) -> str:
    """The first line of a preset's file."""
    return preset_text(name).splitlines()[0].removeprefix("# ")


def load_simulation(name: str, changes: Sequence[str] = ()) -> SimulationConfig:
    """Load a file or a preset; `changes` as "run.seed=3" replace values. Paths are relative to the file's folder."""
    path = Path(name)
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: invalid TOML: {error}") from None
    elif name in preset_names():
        text = preset_text(name)
    else:
        raise ConfigError(f"{name}: {_no_such(name)}")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: invalid TOML: {error}") from None
    for change in changes:
        set_field(document, change)
    try:
        config = SimulationConfig(**document)
    except SettingsError as error:
        raise ConfigError(f"{name}: {sentence('', error.faults)}") from None
    return check_whole(_anchored(config, path.parent))


def _anchored(config: SimulationConfig, base: Path) -> SimulationConfig:
    changed: dict[str, Any] = {}
    if config.data is not None:
        changed["data"] = anchored_data(config.data, base)
    if config.model is not None:
        changed["model"] = config.model.model_copy(update={"name": anchored_name(config.model.name, base)})
    return config.model_copy(update=changed)


def _no_such(name: str) -> str:
    close = get_close_matches(name, preset_names(), n=1)
    nearest = f"did you mean {close[0]}?" if close else f"the presets are {', '.join(preset_names())}"
    return f"there is no such file, and no preset of this name: {nearest}"
