"""Rows of tables on the workers that use them, with a clock for each row that bounds how stale they may be (HET)."""
