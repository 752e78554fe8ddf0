"""What providers billed: their files, and what is kept of them."""
