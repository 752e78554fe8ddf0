"""Curves measured here or by own runs, which estimates then count with."""
