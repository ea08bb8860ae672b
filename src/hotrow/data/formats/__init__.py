"""Presets for well-known data sets: how their files are written, and what their columns mean."""
