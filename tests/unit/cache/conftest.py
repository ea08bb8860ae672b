"""Where the rows of caches are: `row_memory`."""

from unit.row_memory import row_memory as row_memory
