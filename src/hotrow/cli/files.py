"""Files that commands write: checked before a long run starts."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from hotrow.disk import write_text
from hotrow.errors import ConfigError

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.", metavar="FILE")]


def check_writable(option: str, path: Path | None) -> None:
    """ConfigError where the folder of a file does not exist."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise ConfigError(f"{option} {path}: the folder {path.parent} does not exist, make it first")
    if path.is_dir():
        raise ConfigError(f"{option} {path}: is a folder, name a file in it")


def write_json(path: Path | None, document: dict[str, Any]) -> None:
    """Write the document, if a file is given. A number that is not finite becomes null: JSON has none."""
    if path is not None:
        write_text(path, json.dumps(_finite(document), indent=2, allow_nan=False) + "\n", "the figures")


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value
