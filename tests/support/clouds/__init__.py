"""Local servers that answer as the clouds document it, for their real client libraries."""
