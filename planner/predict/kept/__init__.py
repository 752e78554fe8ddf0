"""What is derived from a model once, and kept from search to search."""
