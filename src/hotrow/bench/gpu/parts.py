"""The parts of `hotrow bench gpu`, by name. A new part is a module with `check` and `measure`, and a line here."""

from collections.abc import Sequence
from types import ModuleType

from hotrow.bench.gpu import checks, interactions, kernels, models, store, tiered
from hotrow.errors import ConfigError

PARTS: dict[str, ModuleType] = {
    "kernels": kernels,
    "interactions": interactions,
    "checks": checks,
    "store": store,
    "models": models,
    "tiered": tiered,
}


def chosen(names: Sequence[str] | None) -> dict[str, ModuleType]:
    """The parts of these names, or all."""
    if unknown := [name for name in names or () if name not in PARTS]:
        raise ConfigError(f"--part {unknown[0]}: must be one of {', '.join(PARTS)}")
    return {name: module for name, module in PARTS.items() if not names or name in names}
