"""The roles of a cluster as Ray actors, and how they are started, found and ended."""
