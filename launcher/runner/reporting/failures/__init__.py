"""What is left of a run that failed: which process, why, and what it asks of the user."""
