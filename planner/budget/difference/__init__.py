"""What changed between two reports, and why."""
