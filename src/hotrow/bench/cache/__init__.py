"""`hotrow bench cache`: measurements of the worker cache, and the oracles that they are compared with."""
