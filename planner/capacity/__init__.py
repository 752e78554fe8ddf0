"""Accelerators over time: what a project wants of them, and when it is done with those it has."""
