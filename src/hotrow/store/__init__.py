"""Tables of rows. One protocol; its only tier is RAM."""

from hotrow.store.cut import TableCut
from hotrow.store.ram import RamTier
from hotrow.store.reading import find_or_first
from hotrow.store.rows import Applied, Attached, GoneKeys, LookupPlan, Rows, Stats
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
