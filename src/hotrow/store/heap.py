"""Memory that a step frees stays with the process, for the next step."""

import os

from hotrow import _native

KEPT_BYTES = 256 << 20
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")  # of glibc
TUNABLES = ("glibc.malloc.trim_threshold", "glibc.malloc.mmap_threshold")


def keep_freed_memory() -> bool:
    """Keep up to 256 MB of freed memory, for good. False where the user chose otherwise or the C library cannot.

    It concerns all allocations of the process up to 32 MB each. The choices of the user are glibc's own variables,
    as MALLOC_TRIM_THRESHOLD_ and GLIBC_TUNABLES.
    """
    tuned = os.environ.get("GLIBC_TUNABLES", "")
    if any(name in os.environ for name in VARIABLES) or any(name in tuned for name in TUNABLES):
        return False
    return _native.keep_freed_memory(KEPT_BYTES)
