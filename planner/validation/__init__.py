"""Predictions beside measured runs: errors, null models, held-out folds."""
