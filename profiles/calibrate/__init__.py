"""Kernels of a device measured and fitted to curves."""
