"""Advice: what to change of a setting that somebody trains with today, one thing at a time."""
