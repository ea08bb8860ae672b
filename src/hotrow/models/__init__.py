"""Models as plain torch modules: they get vectors of ids and numbers, give log-odds, and know nothing of tables."""

from hotrow.models.registry import MODELS, build

__all__ = ["MODELS", "build"]
