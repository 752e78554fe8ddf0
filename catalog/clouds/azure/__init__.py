"""What Azure says of prices, regions, quota, evictions and reservations."""
