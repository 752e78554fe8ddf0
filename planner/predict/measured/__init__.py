"""What measurements of one's own change in a prediction."""
