"""A net under all tests with threads."""

from deadlocks import nobody_hangs

__all__ = ["nobody_hangs"]
