"""Parameter storage and the application of gradients."""

from hotrow.server.core import ParameterServer

__all__ = ["ParameterServer"]
