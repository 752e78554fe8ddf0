"""What is answered: the question repeated, the plans, what fell out, what to look at first."""
