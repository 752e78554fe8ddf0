"""Dollars of a run and of its launch."""
