"""A run on a cluster: the driver in this process, parameters on shards, computation on trainers."""
