"""Who performs a training step: today threads of this process."""

from hotrow.engines.local import LocalEngine, Stepped

__all__ = ["LocalEngine", "Stepped"]
