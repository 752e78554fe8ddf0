"""One SQLite store: estimates, launches, what they cost and what they measured."""
