"""What the clouds themselves say today: prices, zones, quota, reservations. Read-only requests."""
