"""What holds parameters and applies gradients to them."""

from hotrow.server.core import ParameterServer

__all__ = ["ParameterServer"]
