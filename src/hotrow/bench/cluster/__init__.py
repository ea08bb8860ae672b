"""`hotrow bench cluster`: a cluster on this machine beside one process, its modes beside each other, and its peers."""
