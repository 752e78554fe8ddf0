"""Launches and runs: before, while and after they cost."""
