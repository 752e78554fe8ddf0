"""What sellers say beside their prices: interruptions of spot machines, commitments, storage."""
