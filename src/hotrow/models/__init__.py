"""Models as plain torch modules: they get vectors of ids and numbers, give log-odds, and know nothing of tables.

Names are imported on first use (PEP 562), so that `hotrow.models.interactions` needs torch alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotrow.models.registry import MODELS, build

__all__ = ["MODELS", "build"]

if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts every name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'hotrow.models' has no attribute {name!r}")
        return getattr(import_module("hotrow.models.registry"), name)
