"""What Google Cloud says of prices, zones, quota, capacity and reservations."""
