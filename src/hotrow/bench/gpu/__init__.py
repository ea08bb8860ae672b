"""Measurements behind `hotrow bench gpu`. They import torch, Triton and `hotrow.kernels` alone.

A part is a module with `check(device, plan)`, which raises where a result is wrong, and `measure(clock, plan)`, which
yields its figures one by one with their names; `parts.PARTS` lists them.
"""
