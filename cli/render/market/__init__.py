"""What is sold, at which price, and what an account may start."""
