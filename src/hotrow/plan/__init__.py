"""The capacity of a run before it starts: rows, bytes per tier and shard, network, speed, mode.

`sample`, `machine` and `measuring` read and measure; everything else is arithmetic.
"""
