"""`hotrow bench tiers`: tables in two tiers, hot rows in memory and the others in a file on disk."""
