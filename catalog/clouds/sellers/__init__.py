"""What smaller sellers ask, as lists of prices collect it: no account is needed."""
