"""What the guard decides, from its orders, its account and what was seen. Nothing here acts."""
