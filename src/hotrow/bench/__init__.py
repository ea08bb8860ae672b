"""Measurements behind `hotrow bench`: ours and the peers in one run, beside what the machine can do at best."""
