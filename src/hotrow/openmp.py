"""How long threads of torch wait for each other by spinning.

A thread of libgomp that waits for the next loop of torch spins some milliseconds before it sleeps, as if it had a core
of its own. Hotrow has more threads than cores: readers, the store, rows that are loaded ahead of their lookup. On two
cores, spinning took more than half of the processor time of a step in two tiers beside another program.
"""

import os
import sys

SPIN_COUNT = "1000"  # libgomp's own, where it knows that there are more threads than cores
CHOICES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # a choice of the user


def shorten_spinning() -> None:
    """Has an effect before torch is imported: libgomp reads the environment once. Child processes inherit it."""
    if "torch" not in sys.modules and not any(name in os.environ for name in CHOICES):
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
