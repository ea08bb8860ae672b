"""Arguments of `hotrow checkpoint import`: which tables are in which files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotrow.checkpoint.importing import ForeignTable
from hotrow.data.files import File, find_files
from hotrow.errors import ConfigError

PARQUET = ".parquet"
TENSORS = (".pt", ".pth", ".safetensors")


def parse_tables(given: Sequence[str]) -> dict[str, str]:
    """NAME=KEY of each table."""
    if not given:
        raise ConfigError("--table: name at least one, as --table items=embedding_bags.items.weight")
    tables: dict[str, str] = {}
    for each in given:
        name, mark, key = each.partition("=")
        if not mark or not name or not key:
            raise ConfigError(f"--table {each}: write NAME=KEY, as items=embedding_bags.items.weight")
        if name in tables:
            raise ConfigError(f"--table {each}: there is a table {name!r} already: give each a name of its own")
        tables[name] = key
    return tables


def parse_optimizer(given: str | None) -> dict[str, Any] | None:
    """Name and settings; numbers and switches are read as JSON."""
    if given is None:
        return None
    name, _, settings = given.partition(":")
    found: dict[str, Any] = {"name": name}
    for each in filter(None, settings.split(",")):
        field, mark, text = each.partition("=")
        if not mark:
            raise ConfigError(f"--optimizer {given}: write NAME:SETTING=VALUE,..., as adam:lr=0.01,eps=1e-6")
        try:
            found[field] = json.loads(text)
        except ValueError:
            found[field] = text
    return found


def foreign_tables(wanted: Mapping[str, str], given: Sequence[str]) -> dict[str, ForeignTable]:
    """The tables by their names; ConfigError where a file is of no known kind."""
    for each in given:
        if Path(each).is_dir():
            message = "is a folder: those of torch.distributed.checkpoint are not read"
            convert = "torch.distributed.checkpoint.format_utils.dcp_to_torch_save makes a file of it"
            raise ConfigError(f"{each}: {message}: {convert}")
    files = find_files(given)
    for file in files:
        if not file.path.endswith((*TENSORS, PARQUET)):
            raise ConfigError(f"{file.name}: name files that end in {', '.join((*TENSORS, PARQUET))}")
    kinds = {file.path.endswith(PARQUET) for file in files}
    if len(kinds) > 1:
        raise ConfigError(f"{files[0].name}: Parquet files and files of tensors: import them one after the other")
    return _of_parquet(wanted, files) if kinds == {True} else _of_tensors(wanted, files)


def _of_parquet(wanted: Mapping[str, str], files: Sequence[File]) -> dict[str, ForeignTable]:
    from hotrow.checkpoint.foreign_parquet import parquet_table

    return {name: parquet_table(name, key, files) for name, key in wanted.items()}


def _of_tensors(wanted: Mapping[str, str], files: Sequence[File]) -> dict[str, ForeignTable]:
    from hotrow.checkpoint.foreign_tensors import tensor_table, tensors_in

    held = [(file, tensors_in(file)) for file in files]
    return {name: tensor_table(name, key, held) for name, key in wanted.items()}
