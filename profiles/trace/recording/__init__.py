"""One step as it runs: each operation, and each storage from birth to death."""
