"""A loader of a cluster: it reads its stretches of a source, and keeps each batch until the driver releases it."""
