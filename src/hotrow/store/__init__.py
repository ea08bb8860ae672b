"""Tables of rows: in memory (`ram`), in a file (`ssd`), and in both (`tiered`), which has the calls of `ram`."""

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
