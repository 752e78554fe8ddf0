"""Layouts: which is predicted to be best, beside what was measured and what was published."""
