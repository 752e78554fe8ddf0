"""The user's own price snapshots: gathered from the clouds, checked, kept, compared."""
