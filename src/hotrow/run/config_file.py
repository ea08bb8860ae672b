"""What all config files have in common: values that a command line sets, and paths that start at the file's folder."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from hotrow.errors import ConfigError
from hotrow.plan.hosts import HostCluster
from hotrow.spec import SettingsError, sentence

PATHS = ("train", "valid", "test", "ads", "users", "items")  # of the section data
NONE = ("none", "null")  # TOML has neither; as a text they are written with quotes

Section = TypeVar("Section", bound=BaseModel)


def set_field(document: dict[str, Any], change: str) -> None:
    """Take in a change as "run.epochs=3"; the value `none` leaves the setting out."""
    place, sign, text = change.partition("=")
    keys = place.strip().split(".")
    if not sign or not all(keys):
        raise ConfigError(f"--set {change}: write it as section.field=value, as --set run.epochs=3")
    where = document
    for key in keys[:-1]:
        where = where.setdefault(key, {})
        if not isinstance(where, dict):
            raise ConfigError(f"--set {change}: {key} is a value, it has no fields: set it whole")
    if text.strip().lower() in NONE:
        where.pop(keys[-1], None)
    else:
        where[keys[-1]] = _value(text.strip())


def check_section(change: str, sections: Mapping[str, Sequence[str]]) -> None:
    """ConfigError where a change names a setting without its section; `sections`: the settings of each."""
    field = change.partition("=")[0].strip()
    homes = [f"{section}.{field}" for section, settings in sections.items() if field in settings]
    if field not in sections and homes:
        raise ConfigError(f"--set {change}: name the section too, as {' or '.join(homes)}")


def set_engine(document: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Set fields of the engine from a command line. Other fields of the same engine stay as in the file.

    The file may have a name there, or a name with settings, or nothing.
    """
    section = document.setdefault("run", {})
    if not given or not isinstance(section, dict):  # a wrong section is reported with the other errors
        return
    was = section.get("engine", {})
    known = dict(was) if isinstance(was, Mapping) else {"name": was}
    name = given.get("name", known.get("name", "local"))
    if name != "ray" and (options := [field for field in given if field != "name"]):
        message = f"--{options[0]} {given[options[0]]}: is for a cluster, and the engine of this run is {name!r}"
        raise ConfigError(f"{message}: add --engine ray, or leave it out")
    kept = known if known.get("name", name) == name else {}
    section["engine"] = {**kept, "name": name, **given}


def anchored_data(data: Section, base: Path) -> Section:
    """The section data with whole paths; relative ones start at `base`."""
    given = {name: getattr(data, name, None) for name in PATHS}
    whole = {name: _whole_path(value, base) for name, value in given.items() if value is not None}
    return data.model_copy(update=whole)


def anchored_name(name: str, base: Path) -> str:
    """The name of a model, which may be that of a file with a class in it: "file.py:Class"."""
    path, colon, class_name = name.rpartition(":")
    return f"{_whole_path(path, base)}:{class_name}" if colon and path.endswith(".py") else name


def read_cluster_section(path: Path) -> HostCluster:
    """The section `[cluster]` of a file; its other sections are not read."""
    document = read_toml(path)
    if not isinstance(section := document.get("cluster"), dict):
        raise ConfigError(f"{path}: has no section [cluster]: it describes the hosts, as hosts = 4 and ram = '512GB'")
    try:
        return HostCluster(**section)
    except SettingsError as error:
        raise ConfigError(f"{path}: {sentence('cluster', error.faults)}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """ConfigError where the file does not exist or is no TOML."""
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file; `hotrow new DIR` writes one to start from")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: invalid TOML: {error}") from None


def _whole_path(value: Any, base: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(_whole_path(each, base) for each in value)
    if not isinstance(value, str) or "://" in value:
        return value
    whole = (base / Path(value).expanduser()).absolute()
    return str(whole.parent.resolve() / whole.name if ".." in whole.parts else whole)  # a link may lead elsewhere


def _value(text: str) -> Any:
    """A TOML value; anything that is none is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
