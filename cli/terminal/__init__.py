"""What is written to the terminal: output, notices, progress."""
