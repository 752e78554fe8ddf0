"""What AWS says of prices, zones, quota, capacity blocks and reservations."""
