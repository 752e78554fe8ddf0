"""What a rank trains on: its micro-batches, and which samples they hold."""
