"""What one option takes, read from what was typed: a batch, a file, a list, a range."""
