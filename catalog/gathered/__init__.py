"""Gathered tables made into the embedded snapshot."""
