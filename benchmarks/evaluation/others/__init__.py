"""The same runs, predicted by others."""
