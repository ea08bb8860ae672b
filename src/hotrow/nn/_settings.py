"""The settings of an EmbeddingBag, checked: which tables, which feature reads which, how bags are read."""

from collections.abc import Mapping
from typing import Any, get_args

from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.nn._bags import BagRules, Mode, signed
from hotrow.spec import whole_number
from hotrow.store.tiers import listed, named_tables


def one_table(given: dict[str, Any]) -> dict[str, Table]:
    """The table of a module without names."""
    if "dim" not in given:
        raise ConfigError("dim is missing: give the floats per row, or tables={...}")
    table = Table(**given)
    return _in_memory({table.name: table})


def many_tables(tables: Mapping[str, Table], given: dict[str, Any]) -> dict[str, Table]:
    """Named tables, each with settings of its own."""
    if given:
        raise ConfigError(f"{listed(given)} given beside tables: set it in each hotrow.Table")
    return _in_memory(named_tables(tables))


def _in_memory(tables: dict[str, Table]) -> dict[str, Table]:
    for name, table in tables.items():
        if table.cache is not None:
            reason = "a cache is in front of rows elsewhere, and this module has its rows in its own process"
            raise ConfigError(f"table {name!r}: cache={table.cache!r}: {reason}: leave cache out")
        if table.hbm not in (0, "auto"):
            raise ConfigError(
                f"table {name!r}: hbm={table.hbm!r}: this module has its rows in host memory: leave hbm out"
            )
    return tables


def table_of_feature(
    tables: Mapping[str, Table], features: Mapping[str, str] | None, *, single: bool
) -> dict[str, str]:
    if features is None:
        return {name: name for name in tables}
    if not isinstance(features, Mapping):
        raise ConfigError(f"features is a {type(features).__name__}: give a dict, feature -> table")
    if single:
        raise ConfigError("features given without tables: make the module with tables={...}")
    for feature, table in features.items():
        if table not in tables:
            raise ConfigError(f"features[{feature!r}]={table!r}: there is no such table; there are {listed(tables)}")
    if not features:
        raise ConfigError("features={}: name one or more, feature -> table, or leave it out")
    return dict(features)


def bag_rules(mode: Mode, padding_idx: int | None, include_last_offset: bool) -> BagRules:
    """How ids are read."""
    if mode not in get_args(Mode):
        raise ConfigError(f"mode={mode!r}: must be 'mean' or 'sum' (a maximum is not offered)")
    if padding_idx is not None:
        padding_idx = whole_number("padding_idx", padding_idx, -(2**63), 2**64 - 1)
    return BagRules(mode, None if padding_idx is None else signed(padding_idx), include_last_offset)
