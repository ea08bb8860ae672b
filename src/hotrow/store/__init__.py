"""Where rows live. One protocol; today its only tier is RAM."""

from hotrow.store.ram import RamTier
from hotrow.store.reading import find_or_first
from hotrow.store.rows import Applied, Attached, Batch, GoneKeys, Rows, Stats

__all__ = ["Applied", "Attached", "Batch", "GoneKeys", "RamTier", "Rows", "Stats", "find_or_first"]
