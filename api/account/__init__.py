"""What the clouds let the user's own account start, and what they billed it."""
