"""Live prices, availability and quota, one file per cloud."""
