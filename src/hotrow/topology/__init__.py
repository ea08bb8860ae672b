"""Sockets, NUMA nodes and devices of a host, and which of its cores the threads of a run use.

`sysfs` reads /sys, `machine` holds what was read, `binding` decides without I/O, `affinity` binds threads.
"""
