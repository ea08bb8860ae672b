"""A resumed run reads its columns as before: the same features, numbers with the mean and deviation measured then."""

from pathlib import Path
from typing import Any

from hotrow.data.config import DataConfig
from hotrow.data.schema import Number, Schema, Standard
from hotrow.data.settings import schema_of
from hotrow.errors import ConfigError
from hotrow.run.config import RunConfig, load_config
from hotrow.run.folder import CONFIG, SCHEMA


def with_kept_schema(config: RunConfig, folder: Path) -> RunConfig:
    """The config with the measured numbers of the run in `folder`; other columns than it was trained on are refused."""
    if not isinstance(config.data, DataConfig) or not (folder / SCHEMA).is_file():
        return config
    kept = Schema.model_validate_json((folder / SCHEMA).read_text(encoding="utf-8"))
    given = schema_of(config.data)
    ours, theirs = _features(given), _features(kept)
    for name in dict.fromkeys([*theirs, *ours]):
        if ours.get(name) != theirs.get(name):
            message = (
                f"it was trained with {theirs.get(name) or 'no such feature'}, now it is {ours.get(name) or 'gone'}"
            )
            raise ConfigError(f"data: feature {name!r}: {message}: start a new run for other columns")
    return config.model_copy(update={"data": config.data.with_schema(kept)})


def check_same_order(config: RunConfig, folder: Path) -> None:
    """ConfigError where the seed or the shuffle window differs from the run's: a resume would train other batches."""
    path = folder / CONFIG
    if not path.is_file():
        return
    kept = load_config(path)
    pairs = {"run.seed": (config.run.seed, kept.run.seed)}
    if isinstance(config.data, DataConfig) and isinstance(kept.data, DataConfig):
        pairs["data.shuffle"] = (config.data.shuffle, kept.data.shuffle)
    for name, (given, before) in pairs.items():
        if given != before:
            message = f"{name}={given:,}: the run in {folder} was trained with {name}={before:,}"
            raise ConfigError(f"{message}: set it back, or start another run with --set run.name=NAME")


def _features(schema: Schema) -> dict[str, dict[str, Any]]:
    """What makes a feature's rows and the model's inputs, by name."""
    # A source finds out by itself that a column holds lists, a config does not know it yet.
    found = {feature.name: feature.model_dump(exclude={"name", "several"}) for feature in schema.ids}
    return found | {f"{number.column} (number)": _without_measures(number) for number in schema.numbers}


def _without_measures(number: Number) -> dict[str, Any]:
    apart = {"transform": {"mean", "deviation"}} if isinstance(number.transform, Standard) else None
    return number.model_dump(exclude=apart)
