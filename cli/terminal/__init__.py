"""What the terminal is given: output, notices, progress."""
