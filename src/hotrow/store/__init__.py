"""Where rows live. One protocol; today its only tier is RAM."""

from hotrow.store.ram import Applied, Batch, RamTier, Rows, Stats

__all__ = ["Applied", "Batch", "RamTier", "Rows", "Stats"]
