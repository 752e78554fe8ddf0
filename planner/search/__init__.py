"""Candidates, their ranking, and why a question has no plan."""
