"""A run on a cluster: the coordinator here, parameters on shards, computing on trainers, all known to one wire."""
