"""Data-parallel layouts: what fits of all that is tried, and how fast it is."""
