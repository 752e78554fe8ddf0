"""What a launch costs before it starts: purchase, terms, limits, the worst case."""
