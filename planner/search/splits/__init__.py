"""Layouts that split the model, searched as arrays: rows, tables, candidates, the best of them."""
