"""Optimizers: specs of the native sparse ones."""
