"""Tables of rows: in memory (`ram`), in a file (`ssd`), in both (`tiered`), in GPU memory (`hbm`).

Names are imported on first use (PEP 562), so that `hotrow.store.hbm` needs torch and Triton alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotrow.store.applied import Applied
    from hotrow.store.cut import TableCut
    from hotrow.store.ram import RamTier
    from hotrow.store.reading import find_or_first
    from hotrow.store.rows import Attached, GoneKeys, LookupPlan, Rows, Stats
    from hotrow.store.saved import SavedTable

__all__ = [
    "Applied",
    "Attached",
    "GoneKeys",
    "LookupPlan",
    "RamTier",
    "Rows",
    "SavedTable",
    "Stats",
    "TableCut",
    "find_or_first",
]

SOURCES = {
    "hotrow.store.applied": "Applied",
    "hotrow.store.cut": "TableCut",
    "hotrow.store.ram": "RamTier",
    "hotrow.store.reading": "find_or_first",
    "hotrow.store.rows": "Attached GoneKeys LookupPlan Rows Stats",
    "hotrow.store.saved": "SavedTable",
}
_SOURCE_OF = {name: module for module, names in SOURCES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts every name

    def __getattr__(name: str) -> object:
        """Import what a public name stands for, and keep it."""
        if name not in _SOURCE_OF:
            raise AttributeError(f"module 'hotrow.store' has no attribute {name!r}")
        value = getattr(import_module(_SOURCE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
